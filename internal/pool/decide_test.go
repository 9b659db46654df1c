package pool

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// autoscaled is a pool that may have from 0 to 5 workers.
func autoscaled(workers int) *scene {
	s := scenery(int32(workers))
	s.Pool.Spec.Replicas = nil
	s.Pool.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 5}
	return s.serving(workers)
}

func TestWhenAPoolIsLookedAtAgain(t *testing.T) {
	tests := map[string]struct {
		scene *scene
		want  time.Duration
	}{
		"one with workers, every 2 s":                      {autoscaled(1), scaling.Interval},
		"one that sleeps, never: its broker wakes it":      {autoscaled(0), 0},
		"one that sleeps, and has something due later":     {due(autoscaled(0)), settled},
		"one that sleeps, and has a source to ask":         {sourced(autoscaled(0)), asked},
		"one whose broker cannot be asked":                 {silent(autoscaled(0)), settled},
		"one whose Queue is not there":                     {troubled(autoscaled(0)), settled},
		"one with a number of workers that are all there":  {scenery(1).serving(1), settled},
		"one with a number of workers that are not there":  {scenery(2).serving(1), scaling.Interval},
		"one that is being deleted, with workers to drain": {deleted(scenery(1).serving(1)), scaling.Interval},
		"one that is gone":                                 {deleted(scenery(0)), 0},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := Decide(test.scene.Input).RequeueAfter; got != test.want {
				t.Errorf("after %s, want %s", got, test.want)
			}
		})
	}
}

func due(s *scene) *scene {
	s.Figures.Delayed = 1
	return s
}

func sourced(s *scene) *scene {
	s.Pool.Spec.Source = &v1alpha1.Source{}
	return s
}

func silent(s *scene) *scene {
	s.Figures, s.Unread = nil, "it does not answer"
	return s
}

func troubled(s *scene) *scene {
	s.Problem = &Problem{v1alpha1.ReasonQueueNotFound, "there is none"}
	return s
}

func deleted(s *scene) *scene {
	s.Pool.DeletionTimestamp = new(metav1.NewTime(noon))
	return s
}

func TestTheFirstMessageWakesAPool(t *testing.T) {
	s := autoscaled(0)
	s.Figures.Backlog, s.Figures.Arrived, s.Figures.Finished = 1, new(int64(1)), new(int64(0))
	plan := Decide(s.Input)
	if plan.Status.Desired != 1 || s.sizes(&plan)[s.Revisions[0].Name] != 1 {
		t.Errorf("%d workers are wanted, and asked for is %v", plan.Status.Desired, s.sizes(&plan))
	}
}

func TestAProblemLeavesAllAsItIs(t *testing.T) {
	s := troubled(scenery(3).serving(3).wants(0))
	plan := Decide(s.Input)
	if plan.acts() || len(plan.Apply) > 0 || plan.Status.Desired != 3 {
		t.Errorf("it is acted on: %+v", plan)
	}
	if c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonQueueNotFound {
		t.Errorf("Ready is %s, %s", c.Status, c.Reason)
	}
}

func TestABudgetIsKeptToAlsoByBusyPools(t *testing.T) {
	s := autoscaled(5)
	s.Budget = new(int32(3))
	for _, w := range s.Workers {
		s.busy(w.Name, 10)
	}
	plan := Decide(s.Input)
	if plan.Status.Desired != 3 || len(marked(&plan, func(m Mark) bool { return !m.Draining.IsZero() })) != 2 {
		t.Errorf("%d workers are wanted, and %+v drained", plan.Status.Desired, plan.Marks)
	}
	if len(plan.Events) == 0 || plan.Events[0].Reason != v1alpha1.EventPreempted {
		t.Errorf("nobody is told: %+v", plan.Events)
	}
}

func TestADeletedPoolDrainsItsWorkers(t *testing.T) {
	tests := map[string]struct {
		scene     *scene
		drains    []string
		finalizer bool
		replicas  int32
	}{
		"all are asked": {
			scenery(2).serving(2), []string{"worker:1-0", "worker:1-1"}, true, 2,
		},
		"and go when they have finished": {
			scenery(1).serving(1).worker("worker:1-0", leaving), nil, true, 0,
		},
		"without a broker they stay": {
			silent(scenery(1).serving(1).worker("worker:1-0", leaving)), nil, true, 1,
		},
		"unless somebody gives up on that": {
			abandoned(silent(scenery(1).serving(1).worker("worker:1-0", leaving))), nil, true, 0,
		},
		"a problem does not keep them": {
			troubled(scenery(1).serving(1)), []string{"worker:1-0"}, true, 1,
		},
		"when none is left the finalizer goes": {
			scenery(0).serving(0), nil, false, 0,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := deleted(test.scene)
			plan := Decide(s.Input)
			drains := marked(&plan, func(m Mark) bool { return m.Draining.Equal(noon) })
			if diff := cmp.Diff(test.drains, drains); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if plan.Finalizer != test.finalizer || s.sizes(&plan)[s.Revisions[0].Name] != test.replicas {
				t.Errorf("finalizer %t, replicas %v", plan.Finalizer, s.sizes(&plan))
			}
		})
	}
}

func abandoned(s *scene) *scene {
	s.Pool.Annotations = map[string]string{AnnotationAbandon: "true"}
	return s
}

func TestFiguresThatWereNeverReadAreNotLost(t *testing.T) {
	lost := func(s *scene) bool {
		return slices.ContainsFunc(Decide(s.Input).Events, func(e Event) bool { return e.Reason == v1alpha1.EventMetricsLost })
	}
	s := silent(autoscaled(1))
	if lost(s) {
		t.Error("figures are called lost that were never read")
	}
	s = autoscaled(1)
	s.Pool.Status = Decide(s.Input).Status
	if !lost(silent(s)) {
		t.Error("nobody is told that figures are lost")
	}
}

func TestFiguresAloneMayBeRecordedLater(t *testing.T) {
	s := autoscaled(1)
	s.Figures.Arrived, s.Figures.Finished = new(int64(0)), new(int64(0))
	s.busy("worker:1-0", 1)
	first := Decide(s.Input)
	s.Pool.Status, s.Memory, s.Now = first.Status, first.Memory, noon.Add(2*time.Second)
	s.busy("worker:1-0", 2)
	if plan := Decide(s.Input); !plan.Deferrable {
		t.Error("a figure is taken for news")
	}
	s.Workers[0].ReadySince = time.Time{}
	if plan := Decide(s.Input); plan.Deferrable {
		t.Error("a worker that is not ready any more is no news")
	}
}
