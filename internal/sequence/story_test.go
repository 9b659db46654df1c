package sequence

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// story is a SequentialJob in a small world. It plays the controller and the cluster
// for Decide, one pass at a time, and the test tells what happens in between. Every pass
// is made twice; the second must plan nothing.
type story struct {
	t       *testing.T
	sj      *v1alpha1.SequentialJob
	jobs    []*batchv1.Job
	pods    map[types.UID][]corev1.Pod
	created map[string]types.UID
	now     time.Time
	events  []Event

	// made are the steps for which Jobs were made, in order.
	made []string
	// uncached are Jobs that exist but that the cache does not show.
	uncached map[string]bool
	// refusals of the API server by step, of dry runs and in earnest.
	dryRun []Refusal
	create map[string]*Refusal
	// deferring leaves deferrable statuses unrecorded.
	deferring bool
}

func newStory(t *testing.T, sj *v1alpha1.SequentialJob) *story {
	return &story{
		t: t, sj: sj,
		pods:     map[types.UID][]corev1.Pod{},
		created:  map[string]types.UID{},
		now:      time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		uncached: map[string]bool{},
		create:   map[string]*Refusal{},
	}
}

// begin is a story whose first pass is over.
func begin(t *testing.T, sj *testbuilder.SequentialJobBuilder) *story {
	s := newStory(t, sj.Obj())
	s.pass()
	return s
}

// pass decides and does what was planned.
func (s *story) pass() Plan {
	s.t.Helper()
	plan := s.decide(nil)
	s.record(plan)
	if plan.Create != nil {
		if refusal := s.create[plan.Create.Labels[v1alpha1.LabelStep]]; refusal != nil {
			plan = s.decide(refusal)
			s.record(plan)
			return plan
		}
	}
	s.act(plan)
	s.checkIdle(plan)
	return plan
}

// checkIdle makes the pass again, which must find nothing to do. A condition that barred
// the Job just made is cleared only now that the Job is there.
func (s *story) checkIdle(plan Plan) {
	s.t.Helper()
	again := s.decide(nil)
	if again.Acts() && !plan.Expired {
		s.t.Errorf("a second pass acts: %+v", again)
	}
	unblocked := plan.Create != nil && blockedByAny(&plan.Status)
	if !unblocked && !equality.Semantic.DeepEqual(again.Status, plan.Status) {
		s.t.Errorf("a second pass changes the status (-first, +second):\n%s", cmp.Diff(plan.Status, again.Status))
	}
}

// decide answers what Decide asks until it plans.
func (s *story) decide(refusal *Refusal) Plan {
	s.t.Helper()
	in := Input{SequentialJob: s.sj.DeepCopy(), Created: s.created, Now: s.now, Refusal: refusal}
	for _, job := range s.jobs {
		if !s.uncached[job.Name] {
			in.Jobs = append(in.Jobs, job.DeepCopy())
		}
	}
	for range 10 {
		plan := Decide(in)
		if plan.Ask == nil {
			return plan
		}
		s.answer(&in, plan.Ask)
	}
	s.t.Fatal("Decide never stops asking")
	return Plan{}
}

func (s *story) answer(in *Input, question *Question) {
	switch {
	case question.JobNamed != "":
		if in.Answers.Read == nil {
			in.Answers.Read = map[string]*batchv1.Job{}
		}
		in.Answers.Read[question.JobNamed] = s.jobNamed(question.JobNamed).DeepCopy()
	case question.PodsOf != nil:
		if in.Answers.Pods == nil {
			in.Answers.Pods = map[types.UID][]corev1.Pod{}
		}
		in.Answers.Pods[question.PodsOf.UID] = s.pods[question.PodsOf.UID]
	case question.AllJobs:
		in.Jobs, in.Answers.Listed = slices.Clone(s.jobs), true
	default:
		in.Answers.DryRun = &DryRun{Refusals: s.dryRun}
	}
}

func (s *story) record(plan Plan) {
	if plan.FirstStep != "" {
		s.sj.Annotations = map[string]string{v1alpha1.AnnotationFirstStep: plan.FirstStep}
	}
	if s.deferring && plan.Deferrable {
		return
	}
	s.events = append(s.events, Events(&s.sj.Status, &plan.Status)...)
	s.sj.Status = *plan.Status.DeepCopy()
	s.sj.Finalizers = nil
	if plan.Finalizer {
		s.sj.Finalizers = []string{v1alpha1.SequentialJobFinalizer}
	}
}

func (s *story) act(plan Plan) {
	if job := plan.Create; job != nil {
		if s.jobNamed(job.Name) != nil {
			s.t.Fatalf("Job %s is made twice", job.Name)
		}
		step := job.Labels[v1alpha1.LabelStep]
		s.made = append(s.made, step)
		uid := types.UID(fmt.Sprintf("job-%d", len(s.made)))
		s.jobs = append(s.jobs, testbuilder.Job(job.DeepCopy()).Created(uid, s.now).Active(s.now).Obj())
		s.created[job.Name] = uid
		s.events = append(s.events, StartedEvent(job))
	}
	if plan.Suspend != nil {
		job := s.jobNamed(plan.Suspend.Name)
		job.Spec.Suspend = new(true)
		job.Annotations[v1alpha1.AnnotationSuspended] = "true"
	}
	if plan.Resume != nil {
		job := s.jobNamed(plan.Resume.Name)
		job.Spec.Suspend = new(false)
		delete(job.Annotations, v1alpha1.AnnotationSuspended)
	}
	for _, doomed := range plan.Delete {
		testbuilder.Job(s.jobNamed(doomed.Name)).Deleted(s.now)
	}
}

func (s *story) jobNamed(name string) *batchv1.Job {
	for _, job := range s.jobs {
		if job.Name == name {
			return job
		}
	}
	return nil
}

// job is the newest Job of a step.
func (s *story) job(step string) *batchv1.Job {
	s.t.Helper()
	for _, job := range slices.Backward(s.jobs) {
		if job.Labels[v1alpha1.LabelStep] == step {
			return job
		}
	}
	s.t.Fatalf("step %s has no Job", step)
	return nil
}

// after lets time go by, and makes a pass.
func (s *story) after(wait time.Duration) Plan {
	s.t.Helper()
	s.now = s.now.Add(wait)
	return s.pass()
}

// succeed and fail end a step's Job, and make a pass.
func (s *story) succeed(step string) Plan {
	s.t.Helper()
	testbuilder.Job(s.job(step)).Complete(s.now)
	return s.pass()
}

func (s *story) fail(step string) Plan {
	s.t.Helper()
	testbuilder.Job(s.job(step)).Failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.now)
	return s.pass()
}

// lose makes a step's Job vanish, and makes a pass.
func (s *story) lose(step string) {
	s.t.Helper()
	job := s.job(step)
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j == job })
	s.pass()
}

// collect removes the Jobs that were deleted, and makes a pass.
func (s *story) collect() Plan {
	s.t.Helper()
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j.DeletionTimestamp != nil })
	return s.pass()
}

// change edits the spec, without a pass.
func (s *story) change(edit func(*v1alpha1.SequentialJobSpec)) {
	edit(&s.sj.Spec)
	s.sj.Generation++
}

// restart makes the operator forget which Jobs it made.
func (s *story) restart() { clear(s.created) }

// remove asks for the SequentialJob's deletion, and makes a pass.
func (s *story) remove() Plan {
	s.t.Helper()
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	return s.pass()
}

func (s *story) step(name string) *v1alpha1.StepStatus {
	s.t.Helper()
	step := findStep(s.sj.Status.Steps, name)
	if step == nil {
		s.t.Fatalf("the status has no step %s", name)
	}
	return step
}

// wantSteps compares the steps' phases, each "name: phase" or "name: phase, reason".
func (s *story) wantSteps(want ...string) {
	s.t.Helper()
	var got []string
	for _, step := range s.sj.Status.Steps {
		text := step.Name + ": " + string(step.Phase)
		if step.Reason != "" {
			text += ", " + step.Reason
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("steps (-want, +got):\n%s", diff)
	}
}

// wantMade compares the steps for which Jobs were made.
func (s *story) wantMade(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.made); diff != "" {
		s.t.Errorf("steps for which Jobs were made (-want, +got):\n%s", diff)
	}
}

// wantPhase compares the phase and the reason that goes with it.
func (s *story) wantPhase(phase v1alpha1.SequentialJobPhase, reason string) {
	s.t.Helper()
	progressing := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionProgressing)
	if s.sj.Status.Phase != phase || progressing == nil || progressing.Reason != reason {
		s.t.Errorf("want phase %s for %s, got %s, %+v", phase, reason, s.sj.Status.Phase, progressing)
	}
}

// wantCondition compares a condition, "" for one that is absent.
func (s *story) wantCondition(kind, want string) {
	s.t.Helper()
	got := ""
	if c := meta.FindStatusCondition(s.sj.Status.Conditions, kind); c != nil {
		got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	if got != want {
		s.t.Errorf("condition %s: want %q, got %q", kind, want, got)
	}
}

// wantEvents compares the reasons of the events since it was last asked.
func (s *story) wantEvents(want ...string) {
	s.t.Helper()
	var got []string
	for _, event := range s.events {
		got = append(got, event.Reason)
	}
	s.events = nil
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("events (-want, +got):\n%s", diff)
	}
}

func deletes(plan Plan) []string {
	names := map[string]bool{}
	for _, job := range plan.Delete {
		names[job.Labels[v1alpha1.LabelStep]] = true
	}
	return slices.Sorted(maps.Keys(names))
}
