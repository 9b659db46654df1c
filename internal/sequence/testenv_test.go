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
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// story is a SequentialJob in a small world. It plays the controller and the cluster
// for Decide, one pass at a time, and the test tells what happens in between. Every pass
// is made twice; the second must decision nothing.
type testEnv struct {
	t       *testing.T
	sj      *v1alpha1.SequentialJob
	jobs    []*batchv1.Job
	pods    map[types.UID][]corev1.Pod
	created map[string]types.UID
	now     time.Time
	events  []core.Event

	// made are the steps for which Jobs were made, in order.
	made []string
	// uncached are Jobs that exist but that the cache does not show.
	uncached map[string]bool
	// refusals of the API server by step, of dry runs and in earnest.
	dryRun []core.Refusal
	create map[string]*core.Refusal
}

func newTestEnv(t *testing.T, sj *v1alpha1.SequentialJob) *testEnv {
	return &testEnv{
		t: t, sj: sj,
		pods:     map[types.UID][]corev1.Pod{},
		created:  map[string]types.UID{},
		now:      time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		uncached: map[string]bool{},
		create:   map[string]*core.Refusal{},
	}
}

// begin is a story whose first pass is over.
func startRun(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	s := newTestEnv(t, sj.Obj())
	s.reconcile()
	return s
}

// pass decides and does what was planned.
func (s *testEnv) reconcile() Decision {
	s.t.Helper()
	decision := s.decide(nil)
	s.record(decision)
	if decision.CreateJob != nil {
		if refusal := s.create[decision.CreateJob.Labels[v1alpha1.LabelStep]]; refusal != nil {
			decision = s.decide(refusal)
			s.record(decision)
			return decision
		}
	}
	s.act(decision)
	s.checkIdle(decision)
	return decision
}

// checkIdle makes the pass again, which must find nothing to do. A condition that barred
// the Job just made is cleared only now that the Job is there.
func (s *testEnv) checkIdle(decision Decision) {
	s.t.Helper()
	again := s.decide(nil)
	if again.HasActions() && !decision.DeleteExpired {
		s.t.Errorf("a second pass acts: %+v", again)
	}
	unblocked := decision.CreateJob != nil && isBlocked(&decision.Status)
	if !unblocked && !equality.Semantic.DeepEqual(again.Status, decision.Status) {
		s.t.Errorf("a second pass changes the status (-first, +second):\n%s", cmp.Diff(decision.Status, again.Status))
	}
}

// decide answers what Decide asks until it plans.
func (s *testEnv) decide(refusal *core.Refusal) Decision {
	s.t.Helper()
	in := Observation{SequentialJob: s.sj.DeepCopy(), CreatedJobs: s.created, Now: s.now, Refusal: refusal}
	for _, job := range s.jobs {
		if !s.uncached[job.Name] {
			in.Jobs = append(in.Jobs, job.DeepCopy())
		}
	}
	for range 10 {
		decision := Decide(in)
		if decision.Question == nil {
			return decision
		}
		s.answer(&in, decision.Question)
	}
	s.t.Fatal("Decide never stops asking")
	return Decision{}
}

func isBlocked(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionResourcesUnavailable) ||
		meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionNameConflict)
}

func (s *testEnv) answer(in *Observation, question *Question) {
	switch {
	case question.JobNamed != "":
		if in.Answers.JobsByName == nil {
			in.Answers.JobsByName = map[string]*batchv1.Job{}
		}
		in.Answers.JobsByName[question.JobNamed] = s.jobNamed(question.JobNamed).DeepCopy()
	case question.PodsOf != nil:
		if in.Answers.PodsByJob == nil {
			in.Answers.PodsByJob = map[types.UID][]corev1.Pod{}
		}
		in.Answers.PodsByJob[question.PodsOf.UID] = s.pods[question.PodsOf.UID]
	case question.AllJobs:
		in.Jobs, in.Answers.HasAllJobs = slices.Clone(s.jobs), true
	default:
		in.Answers.DryRun = &DryRunResult{Refusals: s.dryRun}
	}
}

func (s *testEnv) record(decision Decision) {
	s.events = append(s.events, decision.Events...)
	s.sj.Status = *decision.Status.DeepCopy()
	s.sj.Finalizers = nil
	if decision.NeedsFinalizer {
		s.sj.Finalizers = []string{v1alpha1.SequentialJobFinalizer}
	}
}

func (s *testEnv) act(decision Decision) {
	if job := decision.CreateJob; job != nil {
		if s.jobNamed(job.Name) != nil {
			s.t.Fatalf("Job %s is made twice", job.Name)
		}
		step := job.Labels[v1alpha1.LabelStep]
		s.made = append(s.made, step)
		uid := types.UID(fmt.Sprintf("job-%d", len(s.made)))
		s.jobs = append(s.jobs, testbuilder.Job(job.DeepCopy()).Created(uid, s.now).Active(s.now).Obj())
		s.created[job.Name] = uid
		s.events = append(s.events, JobCreatedEvent(job))
	}
	if decision.SuspendJob != nil {
		job := s.jobNamed(decision.SuspendJob.Name)
		job.Spec.Suspend = new(true)
		job.Annotations[v1alpha1.AnnotationSuspended] = "true"
	}
	if decision.ResumeJob != nil {
		job := s.jobNamed(decision.ResumeJob.Name)
		job.Spec.Suspend = new(false)
		delete(job.Annotations, v1alpha1.AnnotationSuspended)
	}
	for _, doomed := range decision.DeleteJobs {
		testbuilder.Job(s.jobNamed(doomed.Name)).Deleted(s.now)
	}
}

func (s *testEnv) jobNamed(name string) *batchv1.Job {
	for _, job := range s.jobs {
		if job.Name == name {
			return job
		}
	}
	return nil
}

// job is the newest Job of a step.
func (s *testEnv) job(step string) *batchv1.Job {
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
func (s *testEnv) after(wait time.Duration) Decision {
	s.t.Helper()
	s.now = s.now.Add(wait)
	return s.reconcile()
}

// succeed and fail end a step's Job, and make a pass.
func (s *testEnv) succeed(step string) Decision {
	s.t.Helper()
	testbuilder.Job(s.job(step)).Complete(s.now)
	return s.reconcile()
}

func (s *testEnv) fail(step string) Decision {
	s.t.Helper()
	testbuilder.Job(s.job(step)).Failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.now)
	return s.reconcile()
}

// lose makes a step's Job vanish, and makes a pass.
func (s *testEnv) lose(step string) {
	s.t.Helper()
	job := s.job(step)
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j == job })
	s.reconcile()
}

// collect removes the Jobs that were deleted, and makes a pass.
func (s *testEnv) collect() Decision {
	s.t.Helper()
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j.DeletionTimestamp != nil })
	return s.reconcile()
}

// change edits the spec, without a pass.
func (s *testEnv) change(edit func(*v1alpha1.SequentialJobSpec)) {
	edit(&s.sj.Spec)
	s.sj.Generation++
}

// restart makes the operator forget which Jobs it made.
func (s *testEnv) restart() { clear(s.created) }

// remove asks for the SequentialJob's deletion, and makes a pass.
func (s *testEnv) remove() Decision {
	s.t.Helper()
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	return s.reconcile()
}

func (s *testEnv) step(name string) *v1alpha1.StepStatus {
	s.t.Helper()
	step := findStep(s.sj.Status.Steps, name)
	if step == nil {
		s.t.Fatalf("the status has no step %s", name)
	}
	return step
}

// wantSteps compares the steps' phases, each "name: phase" or "name: phase, reason".
func (s *testEnv) wantSteps(want ...string) {
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
func (s *testEnv) wantMade(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.made); diff != "" {
		s.t.Errorf("steps for which Jobs were made (-want, +got):\n%s", diff)
	}
}

// wantPhase compares the phase and the reason that goes with it.
func (s *testEnv) wantPhase(phase v1alpha1.SequentialJobPhase, reason string) {
	s.t.Helper()
	progressing := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionProgressing)
	if s.sj.Status.Phase != phase || progressing == nil || progressing.Reason != reason {
		s.t.Errorf("want phase %s for %s, got %s, %+v", phase, reason, s.sj.Status.Phase, progressing)
	}
}

// wantCondition compares a condition, "" for one that is absent.
func (s *testEnv) wantCondition(kind, want string) {
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
func (s *testEnv) wantEvents(want ...string) {
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

func deletes(decision Decision) []string {
	names := map[string]bool{}
	for _, job := range decision.DeleteJobs {
		names[job.Labels[v1alpha1.LabelStep]] = true
	}
	return slices.Sorted(maps.Keys(names))
}
