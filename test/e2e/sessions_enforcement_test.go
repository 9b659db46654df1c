//go:build e2e

package e2e

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// make e2e runs this test in two clusters: in one that enforces NetworkPolicies, and in one that ignores them.
func TestSessionReportsWhetherNetworkPoliciesAreEnforced(t *testing.T) {
	required := createSession(t, shellRunner, "echo started", nil)
	preferred := createSession(t, createRunnerWithIsolation(t, v1alpha1.NetworkIsolationPreferred), "echo started", nil)
	preferred.waitForPhase(v1alpha1.SessionCompleted)
	if os.Getenv("IGNORES_NETWORK_POLICIES") == "" {
		required.waitForPhase(v1alpha1.SessionCompleted)
		required.wantNetworkRestricted(metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyEnforced)
		preferred.wantNetworkRestricted(metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyEnforced)
		return
	}
	required.waitForPhase(v1alpha1.SessionFailed)
	required.wantRuns("1/1 Failed " + v1alpha1.ReasonNetworkNotEnforced) // without an exit code: the agent did not start
	required.wantNetworkRestricted(metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
	preferred.wantNetworkRestricted(metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
}

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
