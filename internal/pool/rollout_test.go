package pool

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// rolling is a pool of four, a worker more allowed, whose image has changed. So many
// workers are of the new one.
func rolling(old, fresh int) *scene {
	s := scenery(4).serving(old).image("worker:2")
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{}
	return s.revision(fresh)
}

func TestRolling(t *testing.T) {
	type want struct {
		old, fresh, drains int32
	}
	tests := map[string]struct {
		scene *scene
		want  want
	}{
		"first the surge":                         {rolling(4, 0), want{4, 1, 0}},
		"a proven one replaces an old one":        {rolling(4, 1), want{4, 1, 1}},
		"one that is not ready replaces nobody":   {rolling(4, 1).worker("worker:2-0", func(w *Worker) { w.ReadySince = time.Time{} }), want{4, 1, 0}},
		"nor one that has had no success":         {rolling(4, 1).worker("worker:2-0", unproven(time.Second)), want{4, 1, 0}},
		"unless it was idle for 30 s":             {rolling(4, 1).worker("worker:2-0", unproven(30*time.Second)), want{4, 1, 1}},
		"the next comes when an old one is gone":  {rolling(3, 1), want{3, 2, 0}},
		"the last old one goes when all are new":  {rolling(1, 4), want{1, 4, 1}},
		"until the new is proven, the old grows":  {rolling(4, 1).worker("worker:2-0", unproven(time.Second)).wants(6), want{6, 2, 0}},
		"after that, the new grows":               {rolling(4, 1).wants(6), want{4, 4, 0}},
		"what is too much of the old goes first":  {rolling(4, 1).wants(3), want{4, 1, 2}},
		"without a surge an old one goes first":   {spare(rolling(4, 0)), want{4, 0, 1}},
		"and a new one comes in its place":        {spare(rolling(3, 0)), want{3, 1, 0}},
		"what cannot start leaves the old ones":   {rolling(4, 1).worker("worker:2-0", broken), want{4, 1, 0}},
		"Recreate drains all":                     {recreate(rolling(4, 0)), want{4, 0, 4}},
		"and then starts":                         {recreate(rolling(0, 0)), want{0, 4, 0}},
		"a pool at zero has nothing to replace":   {rolling(0, 0).wants(0), want{0, 0, 0}},
		"when it wakes up the old serves as well": {rolling(0, 0), want{4, 1, 0}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			plan := Decide(test.scene.Input)
			sizes := test.scene.sizes(&plan)
			got := want{
				sizes[test.scene.Revisions[0].Name], sizes[test.scene.Revisions[1].Name],
				int32(len(marked(&plan, func(m Mark) bool { return m.Draining.Equal(noon) }))),
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// unproven has had no success, and is ready since a while ago.
func unproven(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.ReadySince = noon.Add(-ago)
		w.Stats.Succeeded = new(int64(0))
	}
}

func broken(w *Worker) {
	w.Running, w.ReadySince, w.Stats, w.Waiting = false, time.Time{}, nil, "ImagePullBackOff"
}

func spare(s *scene) *scene {
	s.Pool.Spec.Rollout.MaxSurge, s.Pool.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	return s
}

func recreate(s *scene) *scene {
	s.Pool.Spec.Rollout.Strategy = v1alpha1.RolloutRecreate
	return s
}

func TestABadImagePausesTheRollout(t *testing.T) {
	s := rolling(4, 1).worker("worker:2-0", broken)
	plan := Decide(s.Input)
	for _, kind := range []string{v1alpha1.ConditionRolloutPaused, v1alpha1.ConditionDegraded} {
		c := meta.FindStatusCondition(plan.Status.Conditions, kind)
		if c.Status != "True" || c.Reason != v1alpha1.ReasonImagePull {
			t.Errorf("%s is %s, %s", kind, c.Status, c.Reason)
		}
	}
	if !meta.IsStatusConditionTrue(plan.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("the old revision serves, and the pool is not Ready")
	}
}

func TestARolloutWithoutProgressSaysSo(t *testing.T) {
	s := rolling(4, 1).worker("worker:2-0", func(w *Worker) { w.ReadySince = time.Time{} })
	plan := Decide(s.Input) // its revision was made an hour ago
	if c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonNoProgress {
		t.Errorf("Progressing is %s, %s", c.Status, c.Reason)
	}
}

func TestANewerSpecSupersedes(t *testing.T) {
	s := rolling(4, 1).image("worker:3")
	plan := Decide(s.Input)
	if diff := cmp.Diff([]string{"worker:2-0"}, marked(&plan, func(m Mark) bool { return !m.Draining.IsZero() })); diff != "" {
		t.Errorf("what was in between goes first (-want, +got):\n%s", diff)
	}
}

func TestTheWayBackNeedsNoProof(t *testing.T) {
	s := rolling(4, 1).image("worker:1").worker("worker:1-3", unproven(time.Second))
	plan := Decide(s.Input)
	if diff := cmp.Diff([]string{"worker:2-0"}, marked(&plan, func(m Mark) bool { return !m.Draining.IsZero() })); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if plan.Status.CurrentRevision != s.Revisions[0].Name {
		t.Errorf("the revision is %s", plan.Status.CurrentRevision)
	}
}

func TestOldRevisionsAreKeptToGoBackTo(t *testing.T) {
	s := scenery(1)
	for _, image := range []string{"worker:a", "worker:b", "worker:c", "worker:d"} {
		s.image(image).revision(0)
		s.Revisions[len(s.Revisions)-1].Created = noon.Add(time.Duration(len(s.Revisions)-100) * time.Hour)
	}
	s.image("worker:1").serving(1)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{RevisionHistory: new(int32(2))}
	plan := Decide(s.Input)
	if diff := cmp.Diff([]string{s.Revisions[1].Name, s.Revisions[0].Name}, plan.Remove); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// canary is a pool of ten, two of which are to be new for a minute, then five until they
// can be judged.
func canary(old, fresh int, past Past) *scene {
	s := scenery(10).serving(old).image("worker:2")
	minute := orDuration(nil, time.Minute)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{
		Strategy: v1alpha1.RolloutCanary, Steps: []v1alpha1.RolloutStep{{Percent: 20, Pause: minute}, {Percent: 50}},
		Analysis: &v1alpha1.RolloutAnalysis{MinSamples: 10},
	}
	s.revision(fresh)
	s.Revisions[1].Past = past
	return s
}

func TestCanary(t *testing.T) {
	counts := func(succeeded, failed int64) func(w *Worker) {
		return func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = &succeeded, &failed }
	}
	type want struct {
		old, fresh int32
		past       Past
	}
	reached := noon.Add(-time.Minute)
	tests := map[string]struct {
		scene *scene
		want  want
	}{
		"as many as the first step has": {canary(10, 0, Past{}), want{10, 2, Past{}}},
		"when they are proven, the step is reached": {
			canary(8, 2, Past{}), want{8, 2, Past{Reached: noon, Progressed: noon, Proven: 2}},
		},
		"after its pause the next begins": {
			canary(8, 2, Past{Proven: 2, Progressed: reached, Reached: reached}), want{8, 5, Past{Step: 1, Proven: 2, Progressed: reached}},
		},
		"a step without a pause lasts until the new can be judged": {
			canary(5, 5, Past{Step: 1, Proven: 5, Progressed: reached, Reached: reached}),
			want{5, 5, Past{Step: 1, Proven: 5, Progressed: reached, Reached: reached}},
		},
		"then all are to be new": {
			canary(5, 5, Past{Step: 1, Proven: 5, Progressed: reached, Reached: reached}).worker("worker:2-0", counts(20, 0)),
			want{5, 8, Past{Step: 2, Proven: 5, Progressed: reached}},
		},
		"if too many fail, it goes back": {
			canary(8, 2, Past{Proven: 2, Progressed: reached}).worker("worker:2-0", counts(15, 4)),
			want{10, 2, Past{Proven: 2, Progressed: reached, Failed: "AnalysisFailed: 20.0 % of its 20 messages have failed, 0.0 % before"}},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			plan := Decide(test.scene.Input)
			sizes := test.scene.sizes(&plan)
			got := want{sizes[test.scene.Revisions[0].Name], sizes[test.scene.Revisions[1].Name], test.scene.Revisions[1].Past}
			for _, size := range plan.Resize {
				if size.Name == test.scene.Revisions[1].Name {
					got.past = size.Past
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
			s := scenery(replicas)
			first := Decide(s.Input)
			if len(first.Resize) != 1 || first.Resize[0].New == nil {
				t.Fatalf("the first pass changes %+v, want a new revision", first.Resize)
			}
			made := first.Resize[0]
			s.Pool.Status = first.Status
			s.Revisions = []Revision{{
				Name: made.Name, Hash: s.hash(), Created: noon, Replicas: made.Replicas, Past: ReadPast(made.Past.String()),
			}}
			if second := Decide(s.Input); len(second.Resize) > 0 {
				t.Errorf("the second pass changes %+v", second.Resize)
			}
		})
	}
}

// The status is stored, and then the revision is written, which may take a second try. The
// worker that failed may be gone by then.
func TestACanaryThatIsGivenUpStaysSoThoughItsRevisionDoesNotSayItYet(t *testing.T) {
	failing := func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = new(int64(15)), new(int64(4)) }
	s := canary(8, 2, Past{Proven: 2}).worker("worker:2-0", failing)
	first := Decide(s.Input)
	if !tells(&first, v1alpha1.EventRolledBack) {
		t.Fatalf("it does not go back: %+v", first.Events)
	}
	s.Pool.Status = first.Status
	s.worker("worker:2-0", func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = new(int64(0)), new(int64(0)) })
	second := Decide(s.Input)
	if tells(&second, v1alpha1.EventRolledBack) {
		t.Error("it is told twice")
	}
	for _, size := range second.Resize {
		if size.Name == s.Revisions[1].Name && size.Past.Failed != "" {
			return
		}
	}
	t.Errorf("it is tried again: %+v", second.Resize)
}

func tells(plan *Plan, reason string) bool {
	return slices.ContainsFunc(plan.Events, func(e Event) bool { return e.Reason == reason })
}
