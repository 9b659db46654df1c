package validation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestInvalidWorkerPoolIsRefused(t *testing.T) {
	valid := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "readers"}}
	valid.Spec.Image = "readers:1"
	reserved := valid.DeepCopy()
	reserved.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: v1alpha1.WorkerContainer, Env: []corev1.EnvVar{{Name: "YARDMASTER_POOL", Value: "mine"}},
	}}}}
	want := []string{"spec.template.spec.containers[0].env[0].name"}
	_, err := WorkerPoolValidator.ValidateCreate(t.Context(), reserved)
	wantFields(t, err, want)
	_, err = WorkerPoolValidator.ValidateUpdate(t.Context(), valid, reserved)
	wantFields(t, err, want)
	_, err = WorkerPoolValidator.ValidateCreate(t.Context(), valid)
	wantFields(t, err, nil)

	relabelled := reserved.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	_, err = WorkerPoolValidator.ValidateUpdate(t.Context(), reserved, relabelled)
	wantFields(t, err, nil)
}

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
	if err != nil || len(warned) != 1 || !strings.HasPrefix(warned[0], "spec.drain.terminationGrace: ") {
		t.Errorf("%q, %v", warned, err)
	}
	warnings, err := WorkerPoolValidator.ValidateCreate(t.Context(), wp)
	if err != nil || len(warnings) != 2 ||
		!strings.HasPrefix(warnings[0], "spec.drain.mode: ") || !strings.HasPrefix(warnings[1], "spec.autoscaling.suspend: ") {
		t.Errorf("%q, %v", warnings, err)
	}
}
