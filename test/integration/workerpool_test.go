package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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

func scalesToZeroWhileRetriesWait(t *testing.T) {
	const jobs, delay = 55, 45 * time.Second
	c := newPoolTestEnv(t, 50*time.Millisecond)
	var failures atomic.Int64
	var firstFailed atomic.Pointer[time.Time]
	c.failJob = func(job *worker.Job) error {
		if job.Attempt > 1 {
			return nil
		}
		firstFailed.CompareAndSwap(nil, new(time.Now()))
		failures.Add(1)
		return fmt.Errorf("not yet: %w", worker.Retry(delay))
	}
	c.createPool("mailers", "autoscaling: {maxReplicas: 8, idleAfter: 3s, scaleDown: {window: 2s, maxStep: 8, period: 1s}}")
	c.waitForPool("mailers", "idle", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.LastDecision != nil })
	c.sendMessages("mail", jobs)
	c.waitFor("all jobs to fail", func() bool { return failures.Load() == jobs })
	failed := time.Now()
	c.waitForPool("mailers", "scaled to zero", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Desired == 0 && wp.Status.Replicas == 0
	})
	// The lease is 5 s: the drain does not wait for it.
	assertWithin(t, "the pool is at zero", 15*time.Second, failed)
	c.waitFor("desired replicas", func() bool { return c.totalReplicas() > 0 })
	if elapsed := time.Since(*firstFailed.Load()); elapsed < delay-3*time.Second {
		t.Errorf("the pool has workers again after %s, want them after %s", elapsed, delay)
	}
	if elapsed := time.Since(failed); elapsed > delay+busyMachine*3*time.Second {
		t.Errorf("the pool has workers again after %s, want them after %s", elapsed, delay)
	}
	c.waitForHandledJobs(jobs)
	c.waitForPool("mailers", "scaled to zero again", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Desired == 0 && wp.Status.Replicas == 0
	})
	c.assertEachJobHandledOnce(jobs)
}

func TestPoolCreatesSharedObjectsAndFollowsTheScaleSubresource(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("mailers", "replicas: 1")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 1 })
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: c.ns, Name: "mailers-workers"}, object); err != nil {
			t.Errorf("%T: %v", object, err)
		} else if !metav1.IsControlledBy(object, c.getPool("mailers")) {
			t.Errorf("%T is not controlled by the pool", object)
		}
	}
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
	if err := cluster.Delete(t.Context(), wp); err != nil {
		t.Fatal(err)
	}
	c.waitFor("the workers to drain", func() bool {
		return !slices.ContainsFunc(c.runningWorkers(), func(w *fakeWorker) bool { return w.worker.Stats().State == worker.StateRunning })
	})
	release()
	c.waitFor("mailers to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(wp), wp))
	})
	c.assertEachJobHandledOnce(3)
}

func TestPoolReportsAMissingQueueAndWaitsForIt(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	object := newManifest(t, "WorkerPool", "waiting", "{image: 'worker:1', queues: [{name: letters}], replicas: 1}")
	object.SetNamespace(c.ns)
	if err := cluster.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	is := c.waitForCondition("waiting", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound)
	if !strings.Contains(is.Message, `"letters"`) {
		t.Errorf("the message does not name the Queue: %q", is.Message)
	}
	if c.totalReplicas() != 0 {
		t.Errorf("it has %d desired replicas", c.totalReplicas())
	}
	c.createQueue("letters", "")
	c.waitForCondition("waiting", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestPoolDoesNotChangeAnObjectOfAnotherOwner(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}, Data: map[string]string{"a": "b"}}
	if err := cluster.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	c.createPool("mailers", "replicas: 1")
	is := c.waitForCondition("mailers", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	if want := "ConfigMap mailers-workers already exists and does not belong to this WorkerPool"; !strings.Contains(is.Message, want) {
		t.Errorf("the message is %q, want %q", is.Message, want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Data) != 1 {
		t.Errorf("the ConfigMap was changed: %v, %v", err, mine.Data)
	}
}

func TestPoolKeepsItsWorkersWithoutItsBroker(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("mailers", "autoscaling: {minReplicas: 2, maxReplicas: 4, scaleDown: {window: 0s, maxStep: 4, period: 1s}}")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 })
	c.waitForCondition("mailers", v1alpha1.ConditionScalingActive, metav1.ConditionTrue, v1alpha1.ReasonAutoscaled)
	c.Stop()
	c.waitForCondition("mailers", v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale)
	c.patchPool("mailers", `{"spec":{"autoscaling":{"minReplicas":0}}}`)
	c.waitForPool("mailers", "reconciled again", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.ObservedGeneration == wp.Generation && wp.Status.LastDecision.Reason == "MetricsUnavailable"
	})
	if wp := c.getPool("mailers"); wp.Status.Desired != 2 || wp.Status.Draining != 0 {
		t.Errorf("%s", describePoolStatus(wp))
	}
	c.Restart()
	c.waitForCondition("mailers", v1alpha1.ConditionScalingActive, metav1.ConditionTrue, v1alpha1.ReasonAutoscaled)
}
