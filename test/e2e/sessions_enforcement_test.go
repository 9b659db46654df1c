//go:build e2e

package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// createRunnerWithIsolation creates a SessionRunner that runs the prompt as a shell script.
func createRunnerWithIsolation(t *testing.T, isolation v1alpha1.NetworkIsolation) string {
	t.Helper()
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{GenerateName: "isolation-", Namespace: sessionsNamespace}}
	r.Spec.Image, r.Spec.RunAsUser, r.Spec.Command, r.Spec.NetworkIsolation = busyboxImage, new(int64(65532)), shellCommand, isolation
	requireNoError(t, cluster.Create(t.Context(), r))
	return r.Name
}

func (s *sessionTest) wantNetworkRestricted(status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	got := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionNetworkRestricted)
	if got == nil || got.Status != status || got.Reason != reason {
		s.t.Errorf("%s is %+v, want %s and %s", v1alpha1.ConditionNetworkRestricted, got, status, reason)
	}
}
