//go:build e2e

package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func testPoliciesIgnored(t *testing.T) {
	required := createUnenforcedSession(t, v1alpha1.NetworkIsolationRequired)
	preferred := createUnenforcedSession(t, v1alpha1.NetworkIsolationPreferred)
	preferred.waitForPhase(v1alpha1.SessionCompleted)
	required.waitForPhase(v1alpha1.SessionFailed)
	required.wantRuns("1/1 Failed " + v1alpha1.ReasonNetworkNotEnforced) // without an exit code: the agent did not start
	required.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
	preferred.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
}

// createUnenforcedSession creates a session where NetworkPolicies are ignored. Its SessionRunner requires or prefers a restricted network.
func createUnenforcedSession(t *testing.T, isolation v1alpha1.NetworkIsolation) *sessionTest {
	t.Helper()
	runner := createRunnerIn(t, unenforcedNamespace, "isolation-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command, spec.Network.Isolation = busyboxImage, shellCommand, isolation
	})
	return createSessionIn(t, unenforcedNamespace, "isolated-", runner, "echo started", nil)
}
