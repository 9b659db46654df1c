package pool

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

// rollingPool is a pool of four, a worker more allowed, whose image has changed. So many
// workers are of the new one.
func rollingPool(old, fresh int) *testPool {
	s := newTestPool(4).withCurrentRevision(old).withImage("worker:2")
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{}
	return s.withRevision(fresh)
}

func TestRolling(t *testing.T) {
	type want struct {
		old, fresh, drains int32
	}
	tests := map[string]struct {
		scene *testPool
		want  want
	}{
		"first the surge":                         {rollingPool(4, 0), want{4, 1, 0}},
		"a proven one replaces an old one":        {rollingPool(4, 1), want{4, 1, 1}},
		"one that is not ready replaces nobody":   {rollingPool(4, 1).changeWorker("worker:2-0", func(w *Worker) { w.ReadySince = time.Time{} }), want{4, 1, 0}},
		"nor one that has had no success":         {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second)), want{4, 1, 0}},
		"unless it was idle for 30 s":             {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(30*time.Second)), want{4, 1, 1}},
		"the next comes when an old one is gone":  {rollingPool(3, 1), want{3, 2, 0}},
		"the last old one goes when all are new":  {rollingPool(1, 4), want{1, 4, 1}},
		"until the new is proven, the old grows":  {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second)).withReplicas(6), want{6, 2, 0}},
		"after that, the new grows":               {rollingPool(4, 1).withReplicas(6), want{4, 4, 0}},
		"what is too much of the old goes first":  {rollingPool(4, 1).withReplicas(3), want{4, 1, 2}},
		"without a surge an old one goes first":   {withMaxUnavailable(rollingPool(4, 0)), want{4, 0, 1}},
		"and a new one comes in its place":        {withMaxUnavailable(rollingPool(3, 0)), want{3, 1, 0}},
		"what cannot start leaves the old ones":   {rollingPool(4, 1).changeWorker("worker:2-0", failImagePull), want{4, 1, 0}},
		"Recreate drains all":                     {withRecreate(rollingPool(4, 0)), want{4, 0, 4}},
		"and then starts":                         {withRecreate(rollingPool(0, 0)), want{0, 4, 0}},
		"a pool at zero has nothing to replace":   {rollingPool(0, 0).withReplicas(0), want{0, 0, 0}},
		"when it wakes up the old serves as well": {rollingPool(0, 0), want{4, 1, 0}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			decision := Decide(test.scene.Observation)
			sizes := test.scene.plannedReplicas(&decision)
			got := want{
				sizes[test.scene.Revisions[0].Name], sizes[test.scene.Revisions[1].Name],
				int32(len(workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) }))),
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// readyWithoutSuccess has had no success, and is ready since a while ago.
func readyWithoutSuccess(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.ReadySince = testTime.Add(-ago)
		w.Stats.Succeeded = new(int64(0))
	}
}

func failImagePull(w *Worker) {
	w.Running, w.ReadySince, w.Stats, w.WaitingReason = false, time.Time{}, nil, "ImagePullBackOff"
}

func withMaxUnavailable(s *testPool) *testPool {
	s.Pool.Spec.Rollout.MaxSurge, s.Pool.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	return s
}

func withRecreate(s *testPool) *testPool {
	s.Pool.Spec.Rollout.Strategy = v1alpha1.RolloutRecreate
	return s
}

func TestABadImagePausesTheRollout(t *testing.T) {
	s := rollingPool(4, 1).changeWorker("worker:2-0", failImagePull)
	decision := Decide(s.Observation)
	for _, kind := range []string{v1alpha1.ConditionRolloutPaused, v1alpha1.ConditionDegraded} {
		c := meta.FindStatusCondition(decision.Status.Conditions, kind)
		if c.Status != "True" || c.Reason != v1alpha1.ReasonImagePull {
			t.Errorf("%s is %s, %s", kind, c.Status, c.Reason)
		}
	}
	if !meta.IsStatusConditionTrue(decision.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("the old revision serves, and the pool is not Ready")
	}
}

func TestARolloutWithoutProgressSaysSo(t *testing.T) {
	s := rollingPool(4, 1).changeWorker("worker:2-0", func(w *Worker) { w.ReadySince = time.Time{} })
	decision := Decide(s.Observation) // its revision was made an hour ago
	if c := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonNoProgress {
		t.Errorf("Progressing is %s, %s", c.Status, c.Reason)
	}
}

func TestANewerSpecSupersedes(t *testing.T) {
	s := rollingPool(4, 1).withImage("worker:3")
	decision := Decide(s.Observation)
	if diff := cmp.Diff([]string{"worker:2-0"}, workersWhere(&decision, func(d DrainState) bool { return !d.DrainingSince.IsZero() })); diff != "" {
		t.Errorf("what was in between goes first (-want, +got):\n%s", diff)
	}
}

func TestTheWayBackNeedsNoProof(t *testing.T) {
	s := rollingPool(4, 1).withImage("worker:1").changeWorker("worker:1-3", readyWithoutSuccess(time.Second))
	decision := Decide(s.Observation)
	if diff := cmp.Diff([]string{"worker:2-0"}, workersWhere(&decision, func(d DrainState) bool { return !d.DrainingSince.IsZero() })); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if decision.Status.CurrentRevision != s.Revisions[0].Name {
		t.Errorf("the revision is %s", decision.Status.CurrentRevision)
	}
}

func TestOldRevisionsAreKeptToGoBackTo(t *testing.T) {
	s := newTestPool(1)
	for _, image := range []string{"worker:a", "worker:b", "worker:c", "worker:d"} {
		s.withImage(image).withRevision(0)
		s.Revisions[len(s.Revisions)-1].Created = testTime.Add(time.Duration(len(s.Revisions)-100) * time.Hour)
	}
	s.withImage("worker:1").withCurrentRevision(1)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{RevisionHistory: new(int32(2))}
	decision := Decide(s.Observation)
	if diff := cmp.Diff([]string{s.Revisions[1].Name, s.Revisions[0].Name}, decision.DeleteRevisions); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// canaryPool is a pool of ten, two of which are to be new for a minute, then five until they
// can be judged.
func canaryPool(old, fresh int, past History) *testPool {
	s := newTestPool(10).withCurrentRevision(old).withImage("worker:2")
	minute := durationOr(nil, time.Minute)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{
		Strategy: v1alpha1.RolloutCanary, Steps: []v1alpha1.RolloutStep{{Percent: 20, Pause: minute}, {Percent: 50}},
		Analysis: &v1alpha1.RolloutAnalysis{MinSamples: 10},
	}
	s.withRevision(fresh)
	s.Revisions[1].History = past
	return s
}

func TestCanary(t *testing.T) {
	counts := func(succeeded, failed int64) func(w *Worker) {
		return func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = &succeeded, &failed }
	}
	type want struct {
		old, fresh int32
		past       History
	}
	reached := testTime.Add(-time.Minute)
	tests := map[string]struct {
		scene *testPool
		want  want
	}{
		"as many as the first step has": {canaryPool(10, 0, History{}), want{10, 2, History{}}},
		"when they are proven, the step is reached": {
			canaryPool(8, 2, History{}), want{8, 2, History{StepReached: testTime, LastProgress: testTime, ProvenWorkers: 2}},
		},
		"after its pause the next begins": {
			canaryPool(8, 2, History{ProvenWorkers: 2, LastProgress: reached, StepReached: reached}), want{8, 5, History{CanaryStep: 1, ProvenWorkers: 2, LastProgress: reached}},
		},
		"a step without a pause lasts until the new can be judged": {
			canaryPool(5, 5, History{CanaryStep: 1, ProvenWorkers: 5, LastProgress: reached, StepReached: reached}),
			want{5, 5, History{CanaryStep: 1, ProvenWorkers: 5, LastProgress: reached, StepReached: reached}},
		},
		"then all are to be new": {
			canaryPool(5, 5, History{CanaryStep: 1, ProvenWorkers: 5, LastProgress: reached, StepReached: reached}).changeWorker("worker:2-0", counts(20, 0)),
			want{5, 8, History{CanaryStep: 2, ProvenWorkers: 5, LastProgress: reached}},
		},
		"if too many fail, it goes back": {
			canaryPool(8, 2, History{ProvenWorkers: 2, LastProgress: reached}).changeWorker("worker:2-0", counts(15, 4)),
			want{10, 2, History{ProvenWorkers: 2, LastProgress: reached, FailureMessage: "AnalysisFailed: 20.0 % of its 20 messages failed, compared to 0.0 % before"}},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			decision := Decide(test.scene.Observation)
			sizes := test.scene.plannedReplicas(&decision)
			got := want{sizes[test.scene.Revisions[0].Name], sizes[test.scene.Revisions[1].Name], test.scene.Revisions[1].History}
			for _, size := range decision.Resizes {
				if size.Name == test.scene.Revisions[1].Name {
					got.past = size.History
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func TestTheFirstRevisionIsMadeOnceAndNotWrittenAgain(t *testing.T) {
	for title, replicas := range map[string]int32{"of a pool at zero": 0, "of a pool with workers": 2} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(replicas)
			first := Decide(s.Observation)
			if len(first.Resizes) != 1 || first.Resizes[0].NewWorkload == nil {
				t.Fatalf("the first pass changes %+v, want a new revision", first.Resizes)
			}
			made := first.Resizes[0]
			s.Pool.Status = first.Status
			s.Revisions = []Revision{{
				Name: made.Name, Hash: s.revisionHash(), Created: testTime, Replicas: made.Replicas, History: ParseHistory(made.History.String()),
			}}
			if second := Decide(s.Observation); len(second.Resizes) > 0 {
				t.Errorf("the second pass changes %+v", second.Resizes)
			}
		})
	}
}

// The status is stored, and then the revision is written, which may take a second try. The
// worker that failed may be gone by then.
func TestACanaryThatIsGivenUpStaysSoThoughItsRevisionDoesNotSayItYet(t *testing.T) {
	failing := func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = new(int64(15)), new(int64(4)) }
	s := canaryPool(8, 2, History{ProvenWorkers: 2}).changeWorker("worker:2-0", failing)
	first := Decide(s.Observation)
	if !hasEvent(&first, v1alpha1.EventRolledBack) {
		t.Fatalf("it does not go back: %+v", first.Events)
	}
	s.Pool.Status = first.Status
	s.changeWorker("worker:2-0", func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = new(int64(0)), new(int64(0)) })
	second := Decide(s.Observation)
	if hasEvent(&second, v1alpha1.EventRolledBack) {
		t.Error("it is told twice")
	}
	for _, size := range second.Resizes {
		if size.Name == s.Revisions[1].Name && size.History.FailureMessage != "" {
			return
		}
	}
	t.Errorf("it is tried again: %+v", second.Resizes)
}

func hasEvent(decision *Decision, reason string) bool {
	return slices.ContainsFunc(decision.Events, func(e core.Event) bool { return e.Reason == reason })
}
