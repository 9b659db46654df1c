package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/worker"
)

// runningWorkers returns the workers of the simulated Pods.
func (c *poolTestEnv) runningWorkers() []*fakeWorker {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*fakeWorker
	for _, w := range c.workers {
		all = append(all, w)
	}
	return all
}

func TestWorkerThatMissedItsSignalEndsLongBeforeItsGracePeriod(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 0)
	c.missSignals = true
	c.createPool("mailers", "replicas: 1")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 1 })
	c.waitForConnectedWorkers(1)
	workers := c.runningWorkers()
	var pods corev1.PodList
	if err := cluster.List(t.Context(), &pods, client.InNamespace(c.ns), client.HasLabels{workerpool.LabelWorkerPool}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods, error %v", len(pods.Items), err)
	}
	finalizer := func(names string) {
		t.Helper()
		patch := client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":`+names+`}}`))
		mustPatch(t, &pods.Items[0], patch)
	}
	finalizer(`["yardmaster.test/keep"]`) // the Pod is terminating until the test ends
	defer finalizer("null")
	mustDelete(t, &pods.Items[0])
	c.waitFor("the worker to end", func() bool { return workers[0].worker.Stats().State == worker.StateDrained })
}

func TestANetworkPolicyLeavesOtherPortsToThoseOfTheNamespace(t *testing.T) {
	t.Parallel()
	c := newPoolWithTwoWorkers(t)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}}
	c.waitForObject("all ports but that of the admin API to be open", policy, func() bool { return len(policy.Spec.Ingress) == 2 })
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "deny"}}
	mustCreate(t, deny)
	c.waitForObject("no port to be opened that another NetworkPolicy closes", policy, func() bool { return len(policy.Spec.Ingress) == 1 })
	mustDelete(t, deny)
	c.waitForObject("other ports to be open again", policy, func() bool { return len(policy.Spec.Ingress) == 2 })
	wp := c.getPool("mailers")
	c.patchObject(wp, `{"spec":{"networkPolicy":"None"}}`)
	c.waitForObject("no Pod to be selected", policy, func() bool { return len(policy.Spec.PodSelector.MatchExpressions) == 1 })
	c.patchObject(wp, `{"spec":{"networkPolicy":null}}`)
	c.waitForObject("the workers to be selected again", policy, func() bool { return len(policy.Spec.PodSelector.MatchExpressions) == 0 })
}
