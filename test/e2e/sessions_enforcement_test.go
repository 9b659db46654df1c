//go:build e2e

package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func testPoliciesIgnored(t *testing.T) {
	required := createIsolatedSession(t, unenforcedNamespace, v1alpha1.NetworkIsolationRequired)
	preferred := createIsolatedSession(t, unenforcedNamespace, v1alpha1.NetworkIsolationPreferred)
	preferred.waitForPhase(v1alpha1.SessionCompleted)
	required.waitForPhase(v1alpha1.SessionFailed)
	required.wantRuns("1/1 Failed " + v1alpha1.ReasonNetworkNotEnforced) // without an exit code: the agent did not start
	required.wantNetworkRestricted(metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
	preferred.wantNetworkRestricted(metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
}

// createIsolatedSession creates a session whose SessionRunner requires or prefers a restricted network.
func createIsolatedSession(t *testing.T, ns string, isolation v1alpha1.NetworkIsolation) *sessionTest {
	t.Helper()
	runner := createRunnerIn(t, ns, "isolation-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerPod(spec).SecurityContext.RunAsUser, testbuilder.RunnerContainer(spec).Command, spec.Network.Isolation = busyboxImage, new(int64(65532)), shellCommand, isolation
	})
	return createSessionIn(t, ns, "isolated-", runner, "echo started", nil)
}

func (s *sessionTest) wantNetworkRestricted(status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	got := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionNetworkRestricted)
	if got == nil || got.Status != status || got.Reason != reason {
		s.t.Errorf("%s is %+v, want %s and %s", v1alpha1.ConditionNetworkRestricted, got, status, reason)
	}
}
