package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/worker"
)

// totalReplicas returns the sum of spec.replicas of all revisions in the namespace.
func (c *poolTestEnv) totalReplicas() int32 {
	c.t.Helper()
	var list appsv1.DeploymentList
	if err := cluster.List(c.t.Context(), &list, client.InNamespace(c.ns)); err != nil {
		c.t.Fatal(err)
	}
	sum := int32(0)
	for i := range list.Items {
		sum += *list.Items[i].Spec.Replicas
	}
	return sum
}

func scalesFromZeroAndBack(t *testing.T) {
	c := newPoolTestEnv(t, 200*time.Millisecond)
	c.createPool("mailers", "autoscaling: {maxReplicas: 5, idleAfter: 3s, scaleDown: {window: 2s, maxStep: 5, period: 1s}}")
	c.waitForPool("mailers", "idle", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.LastDecision != nil && wp.Status.LastDecision.Reason == "Idle"
	})
	if c.totalReplicas() != 0 {
		t.Errorf("an idle pool has %d desired replicas", c.totalReplicas())
	}

	c.sendMessages("mail", 1)
	began := time.Now()
	c.waitFor("desired replicas", func() bool { return c.totalReplicas() > 0 })
	assertWithin(t, "replicas are requested", 2*time.Second, began)
	c.sendMessages("mail", 299)
	c.waitForHandledJobs(300)
	c.waitForPool("mailers", "scaled to zero", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Desired == 0 && wp.Status.Replicas == 0
	})
	c.assertEachJobHandledOnce(300)
}

func TestPoolFollowsTheScaleSubresource(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("mailers", "replicas: 1")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 1 })
	c.scalePool("mailers", 3)
	c.waitForPool("mailers", "three", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 && wp.Status.Replicas == 3 })
	if got := c.getPool("mailers").Status.Selector; got != "yardmaster.dev/workerpool=mailers" {
		t.Errorf("the selector is %q", got)
	}
	c.scalePool("mailers", 1)
	c.waitForPool("mailers", "one", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Replicas == 1 && wp.Status.Draining == 0 })
	c.assertEachJobHandledOnce(0)
}

func TestDeletedPoolWaitsForItsJobs(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 0)
	release := c.holdJobs()
	c.createPool("mailers", "replicas: 2")
	c.waitForConnectedWorkers(2) // a single worker would start the third job only after the first two
	c.sendMessages("mail", 3)
	c.waitFor("the jobs to start", func() bool { return c.consumerInfo("mail").NumAckPending == 3 })
	wp := c.getPool("mailers")
	mustDelete(t, wp)
	c.waitFor("the workers to drain", func() bool {
		return !slices.ContainsFunc(c.runningWorkers(), func(w *fakeWorker) bool { return w.worker.Stats().State == worker.StateRunning })
	})
	release()
	c.waitFor("mailers to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(wp), wp))
	})
	c.assertEachJobHandledOnce(3)
}

func TestPoolDoesNotChangeAnObjectOfAnotherOwner(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}, Data: map[string]string{"a": "b"}}
	mustCreate(t, mine)
	c.createPool("mailers", "replicas: 1")
	is := c.waitForCondition("mailers", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	if want := "ConfigMap mailers-workers already exists and does not belong to this WorkerPool"; !strings.Contains(is.Message, want) {
		t.Errorf("the message is %q, want %q", is.Message, want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Data) != 1 {
		t.Errorf("the ConfigMap was changed: %v, %v", err, mine.Data)
	}
}
