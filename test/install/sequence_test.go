//go:build e2e

package install

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// wantSequence checks that the operator runs sequences in the namespace, and that its webhook refuses wrong ones there.
func wantSequence(t *testing.T, ns string) {
	t.Helper()
	// The API server learns a moment after the webhook's configuration how to reach it.
	poll.Until(t, "the webhook in "+ns, func() bool { return webhookServes(t, ns) })
	completeSequence(t, ns)
}

// completeSequence checks that the operator runs sequences in the namespace.
func completeSequence(t *testing.T, ns string) {
	t.Helper()
	sj := testbuilder.SequentialJob("hello", "").Step("hello").Step("goodbye").Obj()
	sj.Namespace, sj.Name, sj.GenerateName = ns, "", "hello-"
	for i := range sj.Spec.Containers {
		sj.Spec.Containers[i].Image, sj.Spec.Containers[i].Command = "busybox:1.37", []string{"true"}
	}
	require.NoError(t, cluster.Create(t.Context(), sj))
	waitUntilCompleted(t, sj)
}

func waitUntilCompleted(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	poll.Until(t, sj.Name+" in "+sj.Namespace+" to complete", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
		require.True(t, !meta.IsStatusConditionTrue(sj.Status.Conditions, v1alpha1.ConditionFailed), "it failed: %+v", sj.Status)
		return sj.Status.Phase == v1alpha1.PhaseCompleted
	})
}

// webhookServes returns whether the webhook refuses a sequence that only it can refuse, because CEL can't express why.
func webhookServes(t *testing.T, ns string) bool {
	t.Helper()
	sj := testbuilder.SequentialJob("wrong", "").Step("a", testbuilder.StepImage("")).Obj()
	sj.Namespace = ns
	err := cluster.Create(t.Context(), sj, client.DryRunAll)
	var status interface{ Status() metav1.Status }
	return errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid
}

func createQueueAndSchedule(t *testing.T, ns string) {
	t.Helper()
	run(t, "kubectl -n "+ns+" create secret generic broker --from-literal=url=nats://nats.nats:4222 && kubectl -n "+ns+" label secret broker yardmaster.dev/broker=true")
	createQueue(t, ns)
	const objects = `
apiVersion: yardmaster.dev/v1alpha1
kind: Schedule
metadata: {name: each-minute}
spec:
  schedule: "* * * * *"
  sequentialJob:
    spec: {containers: [{name: only, image: "busybox:1.37", command: ["true"]}]}
`
	run(t, "kubectl -n "+ns+" apply -f - <<'YAML'"+objects+"YAML")
}

func createQueue(t *testing.T, ns string) {
	t.Helper()
	run(t, "kubectl -n "+ns+` apply -f - <<'YAML'
apiVersion: yardmaster.dev/v1alpha1
kind: Queue
metadata: {name: jobs}
spec: {broker: {engine: NATS, urlSecretRef: {name: broker}}}
YAML`)
}
