package integration

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// createMutatingPolicy creates a policy of the cluster that changes each new Job of a namespace. It returns when the policy has an
// effect, and skips the test where the API server does not have the kind.
func createMutatingPolicy(t *testing.T, ns, expression string, changes func() bool) {
	t.Helper()
	if !hasMutatingAdmissionPolicies(t) {
		t.Skipf("Kubernetes %s has no MutatingAdmissionPolicy", serverVersion(t))
	}
	for _, object := range testenv.Decode(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: %[2]q}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`, ns, expression)) {
		mustCreate(t, object)
	}
	poll.Until(t, "the policy to have an effect", changes)
}

func TestOutcomesSurviveATimeToLiveOfZero(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createMutatingPolicy(t, ns, "Object{spec: Object.spec{ttlSecondsAfterFinished: 0}}", func() bool {
		probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: ns}}
		probe.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}}
		return cluster.Create(t.Context(), probe, client.DryRunAll) == nil && probe.Spec.TTLSecondsAfterFinished != nil
	})
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := createSequenceIn(t, ns, testbuilder.SequentialJob(fmt.Sprint("etl-", i), "").
				Step("extract", testbuilder.RecordOutput()).Step("check", testbuilder.ContinueOnFailure()).Step("load", testbuilder.RecordOutput()).Obj())
			s.endStep("extract", 0, "42")
			s.endStep("check", 3, "no rows")
			s.endStep("load", 0, "43")
			s.waitForPhase(v1alpha1.PhaseCompleted)
			extract, check, load := s.stepStatus("extract"), s.stepStatus("check"), s.stepStatus("load")
			if extract.Output != "42" || load.Output != "43" || check.ExitCode == nil || *check.ExitCode != 3 || !strings.Contains(check.Message, "no rows") {
				t.Errorf("outputs %q and %q, %+v", extract.Output, load.Output, check)
			}
		})
	}
}
