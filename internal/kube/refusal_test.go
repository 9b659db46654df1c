package kube

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestErrorOfAWriteIsARefusalOrIsRetried(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	terminating := apierrors.NewForbidden(jobs, "a", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	conflict := apierrors.NewConflict(jobs, "a", errors.New("changed"))
	for title, row := range map[string]struct {
		err         error
		wantRefusal decision.Class
		wantErr     error
	}{
		"no error":                       {},
		"an invalid object is a refusal": {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "a", nil), wantRefusal: decision.Invalid},
		"a terminating namespace is retried silently": {err: terminating, wantErr: ErrStale},
		"another error is returned":                   {err: conflict, wantErr: conflict},
	} {
		t.Run(title, func(t *testing.T) {
			refusal, err := AsRefusal(row.err, decision.Refusal{Kind: "Job", Name: "a"})
			require.True(t, errors.Is(err, row.wantErr) && (refusal == nil) == (row.wantRefusal == ""), "got %v, %v", refusal, err)
			require.True(t, refusal == nil || refusal.Class == row.wantRefusal, "class %s", refusal.Class)
		})
	}
}
