package validation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestWorkerPoolWarnings(t *testing.T) {
	wp := &v1alpha1.WorkerPool{}
	wp.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal}
	wp.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 1, Suspend: true}
	short := &v1alpha1.WorkerPool{}
	short.Spec.Drain = &v1alpha1.Drain{
		Timeout:          &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Minute}},
		TerminationGrace: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}},
	}
	warned, err := WorkerPoolValidator.ValidateCreate(t.Context(), short)
	require.True(t, err == nil && len(warned) == 1 && strings.HasPrefix(warned[0], "spec.drain.terminationGrace: "), "%q, %v", warned, err)
	warnings, err := WorkerPoolValidator.ValidateCreate(t.Context(), wp)
	if err != nil || len(warnings) != 2 ||
		!strings.HasPrefix(warnings[0], "spec.drain.mode: ") || !strings.HasPrefix(warnings[1], "spec.autoscaling.suspend: ") {
		t.Errorf("%q, %v", warnings, err)
	}
}
