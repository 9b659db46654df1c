package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestASessionRunnerIsReadyWhenTheObjectsThatItNamesExist(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	runner := newUnschedulableRunner(t, ns)
	runner.Name = "named"
	testbuilder.RunnerPod(&runner.Spec).ServiceAccountName = "default"
	runner.Spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "cas"}}
	mustCreate(t, runner)
	waitForReason := func(reason string) {
		t.Helper()
		poll.Until(t, "the reason "+reason, func() bool {
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(runner), runner); err != nil {
				return false
			}
			ready := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == reason && runner.Status.ObservedGeneration == runner.Generation
		})
	}
	waitForReason(v1alpha1.ReasonConfigMapNotFound)
	mustCreate(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cas", Namespace: ns}})
	waitForReason(v1alpha1.ReasonReady)
}
