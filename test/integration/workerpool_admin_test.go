package integration

import (
	"net/http"
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

func TestOnlyTheOperatorDrainsWorkers(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 0)
	c.createPool("mailers", "replicas: 2")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 })
	c.waitForConnectedWorkers(2)
	secret := &corev1.Secret{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: c.ns, Name: "worker-admin"}, secret); err != nil || len(secret.Data["private.pem"]) == 0 {
		t.Errorf("the Secret has no key: %v", err)
	}
	for _, w := range c.runningWorkers() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/drain", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden || w.worker.Stats().State != worker.StateRunning {
			t.Errorf("POST /drain of another client returned %d, and the worker is %s", response.StatusCode, w.worker.Stats().State)
		}
	}
	c.sendMessages("mail", 3)
	c.waitForHandledJobs(3)
	c.scalePool("mailers", 0)
	c.waitForPool("mailers", "drained", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Replicas == 0 })
	c.assertEachJobHandledOnce(3)
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
		if err := cluster.Patch(t.Context(), &pods.Items[0], patch); err != nil {
			t.Fatal(err)
		}
	}
	finalizer(`["yardmaster.test/keep"]`) // the Pod is terminating until the test ends
	defer finalizer("null")
	if err := cluster.Delete(t.Context(), &pods.Items[0]); err != nil {
		t.Fatal(err)
	}
	c.waitFor("the worker to end", func() bool { return workers[0].worker.Stats().State == worker.StateDrained })
}

func TestANetworkPolicyLeavesOtherPortsToThoseOfTheNamespace(t *testing.T) {
	t.Parallel()
	c := newPoolWithTwoWorkers(t)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}}
	c.waitForObject("all ports but that of the admin API to be open", policy, func() bool { return len(policy.Spec.Ingress) == 2 })
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "deny"}}
	if err := cluster.Create(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	c.waitForObject("no port to be opened that another NetworkPolicy closes", policy, func() bool { return len(policy.Spec.Ingress) == 1 })
	if err := cluster.Delete(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	c.waitForObject("other ports to be open again", policy, func() bool { return len(policy.Spec.Ingress) == 2 })
	wp := c.getPool("mailers")
	c.patchObject(wp, `{"spec":{"networkPolicy":"None"}}`)
	c.waitForObject("no Pod to be selected", policy, func() bool { return len(policy.Spec.PodSelector.MatchExpressions) == 1 })
	c.patchObject(wp, `{"spec":{"networkPolicy":null}}`)
	c.waitForObject("the workers to be selected again", policy, func() bool { return len(policy.Spec.PodSelector.MatchExpressions) == 0 })
}
