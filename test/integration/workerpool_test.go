package integration

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// asked is how many replicas all revisions of the namespace's pools are asked for.
func (c *crew) asked() int32 {
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

func TestAPoolWakesUpWithTheFirstMessageAndSleepsAgain(t *testing.T) {
	c := newCrew(t, 200*time.Millisecond)
	c.hire("postmen", "autoscaling: {maxReplicas: 5, idleAfter: 3s, scaleDown: {window: 2s, maxStep: 5, period: 1s}}")
	c.until("postmen", "asleep", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.LastDecision != nil && wp.Status.LastDecision.Reason == "Idle"
	})
	if c.asked() != 0 {
		t.Errorf("a pool with nothing to do asks for %d workers", c.asked())
	}

	began := time.Now()
	c.send("mail", 300)
	c.eventually("workers to be asked for", func() bool { return c.asked() > 0 })
	within(t, "workers are asked for", 2*time.Second, began)
	c.untilDone(300)
	c.until("postmen", "asleep again", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Desired == 0 && wp.Status.Replicas == 0
	})
	c.wantOnce(300)
}

func TestARolloutReplacesAllWorkersAndStrikesNone(t *testing.T) {
	c := newCrew(t, 300*time.Millisecond)
	c.hire("postmen", "replicas: 3, version: one")
	c.until("postmen", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 })
	old := c.pool("postmen").Status.CurrentRevision

	sent := 0
	stop := time.After(20 * time.Second)
	c.change("postmen", `{"spec":{"version":"two"}}`)
	for over := false; !over; {
		select {
		case <-stop:
			over = true
		case <-time.After(200 * time.Millisecond):
			c.send("mail", 4)
			sent += 4
		}
	}
	c.until("postmen", "rolled out", func(wp *v1alpha1.WorkerPool) bool {
		s := &wp.Status
		return s.CurrentRevision != old && s.CurrentRevision == s.UpdatedRevision && s.Replicas == 3 && s.Ready == 3 && s.Draining == 0
	})
	c.untilDone(sent)
	c.wantOnce(sent)
	c.wantIs("postmen", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRolledOut)
	gone := &appsv1.Deployment{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: c.ns, Name: old}, gone); err != nil || *gone.Spec.Replicas != 0 {
		t.Errorf("the old revision is not kept to go back to: %v, %+v", err, gone.Spec.Replicas)
	}
}

func TestAPoolIsMadeOfWhatItsWorkersNeedAndScaledByHand(t *testing.T) {
	c := newCrew(t, 10*time.Millisecond)
	c.hire("postmen", "replicas: 1")
	c.until("postmen", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 1 })
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: c.ns, Name: "postmen-workers"}, object); err != nil {
			t.Errorf("%T: %v", object, err)
		} else if !pool.IsControllerOf(c.pool("postmen"), object) {
			t.Errorf("%T is not the pool's", object)
		}
	}
	c.scale("postmen", 3)
	c.until("postmen", "three", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 && wp.Status.Replicas == 3 })
	if got := c.pool("postmen").Status.Selector; got != "yardmaster.dev/workerpool=postmen" {
		t.Errorf("the selector is %q", got)
	}
	c.scale("postmen", 1)
	c.until("postmen", "one", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Replicas == 1 && wp.Status.Draining == 0 })
	c.wantOnce(0)
}

func TestADeletedPoolWaitsForItsJobs(t *testing.T) {
	c := newCrew(t, 4*time.Second)
	c.hire("postmen", "replicas: 2")
	c.untilConnected(2) // one alone would have done two before it took the third
	c.send("mail", 3)
	c.eventually("the jobs to be begun", func() bool { return c.consumer("mail").NumAckPending == 3 })
	wp := c.pool("postmen")
	if err := cluster.Delete(t.Context(), wp); err != nil {
		t.Fatal(err)
	}
	c.eventually("postmen to be gone", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(wp), wp))
	})
	c.wantOnce(3)
}

func TestAQueueThatIsNotThereIsNamedAndWaitedFor(t *testing.T) {
	c := newCrew(t, 10*time.Millisecond)
	object := given(t, "WorkerPool", "clerks", "{image: 'worker:1', queues: [{name: letters}], replicas: 1}")
	object.SetNamespace(c.ns)
	if err := cluster.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	is := c.wantIs("clerks", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQueueNotFound)
	if !strings.Contains(is.Message, `"letters"`) {
		t.Errorf("it does not name the Queue: %q", is.Message)
	}
	if c.asked() != 0 {
		t.Errorf("it asks for %d workers", c.asked())
	}
	c.declare("letters", "")
	c.wantIs("clerks", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestWhatBelongsToAnotherIsLeftAlone(t *testing.T) {
	c := newCrew(t, 10*time.Millisecond)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "postmen-workers"}, Data: map[string]string{"my": "own"}}
	if err := cluster.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	c.hire("postmen", "replicas: 1")
	is := c.wantIs("postmen", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSpecInvalid)
	if want := "ConfigMap postmen-workers exists and is not this WorkerPool's"; !strings.Contains(is.Message, want) {
		t.Errorf("it says %q, want %q", is.Message, want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Data) != 1 {
		t.Errorf("it was changed: %v, %v", err, mine.Data)
	}
}

func TestAPoolWithoutItsBrokerKeepsItsWorkers(t *testing.T) {
	c := newCrew(t, 10*time.Millisecond)
	c.hire("postmen", "autoscaling: {minReplicas: 2, maxReplicas: 4, scaleDown: {window: 0s, maxStep: 4, period: 1s}}")
	c.until("postmen", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 })
	c.wantIs("postmen", v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, v1alpha1.ReasonMetricsFresh)
	c.Stop()
	c.wantIs("postmen", v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale)
	c.change("postmen", `{"spec":{"autoscaling":{"minReplicas":0}}}`)
	c.until("postmen", "decided about anew", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.ObservedGeneration == wp.Generation && wp.Status.LastDecision.Reason == "NoFigures"
	})
	if wp := c.pool("postmen"); wp.Status.Desired != 2 || wp.Status.Draining != 0 {
		t.Errorf("%s", describePool(wp))
	}
	c.Restart()
	c.wantIs("postmen", v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, v1alpha1.ReasonMetricsFresh)
}
