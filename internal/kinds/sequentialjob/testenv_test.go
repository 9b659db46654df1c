package sequentialjob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// testEnv simulates the controller and the cluster for one SequentialJob. Each reconciliation
// makes its decision twice; the second must contain no action.
type testEnv struct {
	t           *testing.T
	sj          *v1alpha1.SequentialJob
	jobs        []*batchv1.Job
	expired     []*batchv1.Job // Jobs that were deleted after their end, as the operator saw
	pods        map[types.UID][]corev1.Pod
	evidence    evidenceByJob
	createdUIDs map[string]types.UID
	now         time.Time
	events      []decision.Event

	createdSteps []string // the steps for which Jobs were created, in order
	// uncached are Jobs that exist and that the cache does not show.
	uncached map[string]bool
	// dryRunRefusals and createRefusals are refusals of dry runs and, by step, of creations.
	dryRunRefusals []decision.Refusal
	createRefusals map[string]*decision.Refusal
	policies       policy.Selection
	// unfinishedPods are in the cache, and warnings are messages of events by the object's UID.
	unfinishedPods []*corev1.Pod
	warnings       map[types.UID]string
	claim          *metav1.PartialObjectMetadata // the workspace's claim, nil if it does not exist
	createdClaims  int
	claimRefusal   *decision.Refusal
	unprotected    string // why no admission policy protects approvals
	// archiveImage is the operator's image, and createdArchives are the created Jobs that archive logs.
	archiveImage    string
	createdArchives []*batchv1.Job
	archiveRefusal  *decision.Refusal
	// hasStored is true if the process has stored the status, storesLater if it stores late what it may, leavesPods if a deleted Job leaves its Pods.
	hasStored, storesLater, leavesPods bool
}

type evidenceByJob map[types.UID]Evidence

func (e evidenceByJob) change(job types.UID, observe func(*Evidence)) {
	evidence := e[job]
	evidence = evidence.Clone()
	observe(&evidence)
	e[job] = evidence
}

func (e evidenceByJob) watch(job types.UID) { e.change(job, func(e *Evidence) { e.Watched = true }) }

func newTestEnv(t *testing.T, sj *v1alpha1.SequentialJob) *testEnv {
	return &testEnv{
		t: t, sj: sj, archiveImage: "yardmaster:test",
		pods:           map[types.UID][]corev1.Pod{},
		evidence:       evidenceByJob{},
		createdUIDs:    map[string]types.UID{},
		now:            time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		uncached:       map[string]bool{},
		warnings:       map[types.UID]string{},
		createRefusals: map[string]*decision.Refusal{},
	}
}

func startRun(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	return newTestEnv(t, sj.Obj()).pass(wait(0))
}

func (s *testEnv) reconcile() Decision {
	decision := s.decideAndRecord(nil)
	if decision.Workspace != nil {
		if s.claimRefusal != nil {
			return s.decideAndRecord(s.claimRefusal)
		}
		s.createClaim(decision.Workspace)
		decision = s.decideAndRecord(nil) // records the claim's UID
	}
	if decision.CreateJob != nil {
		if refusal := s.createRefusals[decision.CreateJob.Labels[v1alpha1.LabelStep]]; refusal != nil {
			return s.decideAndRecord(refusal)
		}
	}
	if decision.CreateArchive != nil && s.archiveRefusal != nil {
		refusal := *s.archiveRefusal
		refusal.Kind, refusal.Name = "Job", decision.CreateArchive.Name
		decision.CreateArchive = nil
		s.act(decision)
		return s.decideAndRecord(&refusal)
	}
	s.act(decision)
	s.checkSecondDecision(decision)
	return decision
}

func (s *testEnv) decideAndRecord(refusal *decision.Refusal) Decision {
	decision := s.decide(refusal)
	s.record(decision)
	return decision
}

// checkSecondDecision repeats the decision, which must contain no action. A condition that
// blocked the Job is cleared only after the Job exists.
func (s *testEnv) checkSecondDecision(decision Decision) {
	if decision.RequeueAfter == time.Millisecond {
		return // the decision is incomplete: the next one is due at once
	}
	again := s.decide(nil)
	require.True(s.t, !again.HasActions() || decision.DeleteExpired, "a second decision acts: %+v", again)
	unblocked := decision.CreateJob != nil && isBlocked(&decision.Status)
	isStored := !s.storesLater || decision.RecordWithin == 0 // else the second decision reads the UID of the Job
	if isStored && !unblocked && !equality.Semantic.DeepEqual(again.Status, decision.Status) {
		s.t.Errorf("a second decision changes the status (-first, +second):\n%s", cmp.Diff(decision.Status, again.Status))
	}
}

func (s *testEnv) decide(refusal *decision.Refusal) Decision {
	in := Observation{
		SequentialJob: s.sj.DeepCopy(), HasStored: s.hasStored, CreatedJobs: maps.Clone(s.createdUIDs), Policies: s.policies, Pods: s.unfinishedPods,
		Evidence: s.evidence, Now: s.now, Refusal: refusal, ArchiveImage: s.archiveImage,
		Answers: Answers{JobsByName: map[string]*batchv1.Job{}, PodsByJob: map[types.UID][]corev1.Pod{}, Warnings: map[types.UID]string{}},
	}
	for _, job := range s.jobs {
		if !s.uncached[job.Name] {
			in.Jobs = append(in.Jobs, job.DeepCopy())
		}
	}
	slices.Reverse(in.Jobs) // a cache has no order
	for _, job := range s.expired {
		in.Jobs = AddEnded(in.SequentialJob, in.Jobs, in.CreatedJobs, job)
	}
	for range 10 {
		d := Decide(in)
		if d.Question == nil {
			return d
		}
		s.answer(&in, d.Question)
	}
	s.t.Fatal("Decide does not stop asking questions")
	return Decision{}
}

func isBlocked(status *v1alpha1.SequentialJobStatus) bool {
	return slices.ContainsFunc([]string{
		v1alpha1.ConditionResourcesUnavailable, v1alpha1.ConditionBlocked,
	}, func(kind string) bool { return meta.IsStatusConditionTrue(status.Conditions, kind) })
}

func (s *testEnv) answer(in *Observation, question *Question) {
	switch {
	case question.JobNamed != "":
		job := s.jobNamed(question.JobNamed).DeepCopy()
		if in.Answers.JobsByName[question.JobNamed] = job; job != nil {
			s.createdUIDs[job.Name] = job.UID
		}
	case question.PodsOf != nil && question.PodsOf.CreationTimestamp.IsZero() && !s.leavesPods: // the Job was deleted
		in.Answers.PodsByJob[question.PodsOf.UID] = nil
	case question.PodsOf != nil:
		pods, changed := s.pods[question.PodsOf.UID]
		if condition := decision.FindEndCondition(question.PodsOf); !changed && condition != nil && condition.Type == batchv1.JobComplete {
			pods = []corev1.Pod{testbuilder.Pod(question.PodsOf.Labels[v1alpha1.LabelStep]).Exited(0, "").Obj()}
		}
		in.Answers.PodsByJob[question.PodsOf.UID] = pods
		s.evidence.change(question.PodsOf.UID, func(e *Evidence) {
			for i := range pods {
				if !decision.HasPodEnded(&pods[i]) {
					e.Observe(&pods[i])
				}
			}
		})
	case question.Claim != "":
		in.Answers.Claims = map[string]*metav1.PartialObjectMetadata{question.Claim: s.claim.DeepCopy()}
	case question.ApprovalPolicies:
		in.Answers.UnprotectedApprovals = &s.unprotected
	case question.WarningsOf != "":
		in.Answers.Warnings[question.WarningsOf] = s.warnings[question.WarningsOf]
	case question.AllJobs:
		in.AnswerAllJobs(slices.Clone(s.jobs))
	default:
		in.Answers.DryRun = &DryRunResult{Refusals: s.dryRunRefusals}
	}
}

func (s *testEnv) createClaim(claim *corev1.PersistentVolumeClaim) {
	require.True(s.t, s.claim == nil, "claim %s is created twice", claim.Name)
	s.createdClaims++
	s.claim = &metav1.PartialObjectMetadata{ObjectMeta: *claim.ObjectMeta.DeepCopy()}
	s.claim.UID = types.UID(fmt.Sprintf("claim-%d", s.createdClaims))
}

func (s *testEnv) record(decision Decision) {
	if s.storesLater && decision.RecordWithin > 0 {
		return
	}
	s.hasStored = true
	s.events = append(s.events, decision.Events...)
	s.sj.Status = *decision.Status.DeepCopy()
	maps.DeleteFunc(s.createdUIDs, func(name string, _ types.UID) bool {
		step := activeStep(s.sj.Status.Steps)
		return step == nil || step.JobName != name || step.JobUID != ""
	})
	s.sj.Finalizers = nil
	if decision.NeedsFinalizer {
		s.sj.Finalizers = []string{v1alpha1.SequentialJobFinalizer}
	}
}

func (s *testEnv) act(decision Decision) {
	if job := decision.CreateJob; job != nil {
		require.True(s.t, s.jobNamed(job.Name) == nil, "Job %s is created twice", job.Name)
		step := job.Labels[v1alpha1.LabelStep]
		s.createdSteps = append(s.createdSteps, step)
		uid := types.UID(fmt.Sprintf("job-%d", len(s.createdSteps)))
		s.jobs = append(s.jobs, testbuilder.Job(job.DeepCopy()).Created(uid, s.now).Active(s.now).Obj())
		s.createdUIDs[job.Name] = uid
		s.evidence.watch(uid)
		s.events = append(s.events, JobCreatedEvent(job))
	}
	if job := decision.CreateArchive; job != nil {
		s.createdArchives = append(s.createdArchives, job)
		uid := types.UID(fmt.Sprintf("archive-%d", len(s.createdArchives)))
		s.jobs = append(s.jobs, testbuilder.Job(job.DeepCopy()).Created(uid, s.now).Active(s.now).Obj())
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
	for _, deleted := range decision.DeleteJobs {
		if step := EvidenceWithoutJob(s.sj); step != nil && step.JobUID == deleted.UID {
			s.evidence.watch(deleted.UID)
		}
		if job := s.jobNamed(deleted.Name); job != nil { // it may have expired
			testbuilder.Job(job).Deleted(s.now)
		}
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

func (s *testEnv) newestJob(step string) *batchv1.Job {
	s.t.Helper()
	for _, job := range slices.Backward(s.jobs) {
		if job.Labels[v1alpha1.LabelStep] == step {
			return job
		}
	}
	s.t.Fatalf("step %s has no Job", step)
	return nil
}

func (s *testEnv) reconcileAfter(wait time.Duration) Decision {
	s.now = s.now.Add(wait)
	return s.reconcile()
}

func (s *testEnv) succeedStep(step string) Decision {
	testbuilder.Job(s.newestJob(step)).Complete(s.now)
	return s.reconcile()
}

func (s *testEnv) failStep(step string) Decision {
	testbuilder.Job(s.newestJob(step)).Failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.now)
	return s.reconcile()
}

func (s *testEnv) changeSpec(edit func(*v1alpha1.SequentialJobSpec)) {
	edit(&s.sj.Spec)
	s.sj.Generation++
}

// restartOperator makes the operator forget which Jobs it created, and what it has seen of their Pods.
func (s *testEnv) restartOperator() {
	clear(s.createdUIDs)
	clear(s.evidence)
	s.hasStored = false
}

func (s *testEnv) deleteSequentialJob() Decision {
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	return s.reconcile()
}

func (s *testEnv) stepStatus(name string) *v1alpha1.StepStatus {
	s.t.Helper()
	step := findStep(s.sj.Status.Steps, name)
	require.True(s.t, step != nil, "the status has no step %s", name)
	return step
}

// A story is what happens to a run after its first reconciliation, and what must be true in between.
type story []func(*testEnv)

// A scenario is a SequentialJob and the story of its run.
type scenario struct {
	sj    *testbuilder.SequentialJobBuilder
	story story
}

func runScenarios(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for title, scenario := range scenarios {
		t.Run(title, func(t *testing.T) { startRun(t, scenario.sj).pass(scenario.story...) })
	}
}

func (s *testEnv) pass(story ...func(*testEnv)) *testEnv {
	s.t.Helper()
	for i, happens := range story {
		hadFailed := s.t.Failed()
		happens(s)
		if s.t.Failed() && !hadFailed {
			s.t.Logf("in part %d of %d of the story", i+1, len(story))
		}
	}
	return s
}

func sequence(steps ...string) *testbuilder.SequentialJobBuilder {
	sj := testbuilder.SequentialJob("a", "ns")
	for _, step := range steps {
		sj.Step(step)
	}
	return sj
}

func wait(d time.Duration) func(*testEnv) { return func(s *testEnv) { s.reconcileAfter(d) } }

// succeed completes the Jobs of these steps, one after another.
func succeed(steps ...string) func(*testEnv) {
	return func(s *testEnv) {
		for _, step := range steps {
			s.succeedStep(step)
		}
	}
}

// exits lets the container of a step's newest Job exit, before its Job ends.
func exits(step string, code int32, message string) func(*testEnv) {
	return func(s *testEnv) {
		s.pods[s.newestJob(step).UID] = []corev1.Pod{testbuilder.Pod(step).Exited(code, message).Obj()}
	}
}

func storeLater(later bool) func(*testEnv) { return func(s *testEnv) { s.storesLater = later } }
func fail(step string) func(*testEnv)      { return func(s *testEnv) { s.failStep(step) } }

func lose(step string) func(*testEnv) {
	return func(s *testEnv) {
		job := s.newestJob(step)
		s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j == job })
		s.reconcile()
	}
}

func removeJobs(s *testEnv) {
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j.DeletionTimestamp != nil })
	s.reconcile()
}

func edit(change func(*v1alpha1.SequentialJobSpec)) func(*testEnv) {
	return func(s *testEnv) {
		s.changeSpec(change)
		s.reconcile()
	}
}

// removeFirstStep removes it from the spec, as is possible without the webhook.
func removeFirstStep(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }

func suspendRun(s *testEnv) { edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true })(s) }

func resumeRun(s *testEnv) { edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })(s) }

func rerun(from string) func(*testEnv) {
	return func(s *testEnv) {
		edit(func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: strconv.Itoa(int(s.sj.Status.Run) + 1)}, From: from}
		})(s)
	}
}

// refuse lets the API server refuse the Job of a step, until accept.
func refuse(step string, class decision.Class) func(*testEnv) {
	return func(s *testEnv) { s.createRefusals[step] = &decision.Refusal{Class: class, Step: step, Message: "no"} }
}

func accept(step string) func(*testEnv) {
	return func(s *testEnv) {
		delete(s.createRefusals, step)
		s.reconcile()
	}
}

// steps compares the steps' phases, each "name: phase" or "name: phase, reason".
func steps(want ...string) func(*testEnv) {
	return func(s *testEnv) {
		var got []string
		for _, step := range s.sj.Status.Steps {
			got = append(got, strings.TrimSuffix(fmt.Sprintf("%s: %s, %s", step.Name, step.Phase, step.Reason), ", "))
		}
		assert.Equal(s.t, "steps", want, got)
	}
}

// created compares the steps for which Jobs were created.
func created(want ...string) func(*testEnv) {
	return func(s *testEnv) { assert.Equal(s.t, "steps for which Jobs were created", want, s.createdSteps) }
}

func runsImage(step, want string) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "image", want, s.newestJob(step).Spec.Template.Spec.Containers[0].Image)
	}
}

func phase(want v1alpha1.SequentialJobPhase, reason string) func(*testEnv) {
	return func(s *testEnv) {
		progressing := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionProgressing)
		require.True(s.t, s.sj.Status.Phase == want && progressing != nil && progressing.Reason == reason,
			"want phase %s for %s, got %s, %+v", want, reason, s.sj.Status.Phase, progressing)
	}
}

// hasCondition compares a condition, "" for one that is absent.
func hasCondition(kind, want string) func(*testEnv) {
	return func(s *testEnv) {
		got := ""
		if c := meta.FindStatusCondition(s.sj.Status.Conditions, kind); c != nil {
			got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		assert.Equal(s.t, "condition "+kind, want, got)
	}
}

func forgetEvents(s *testEnv) { s.events = nil }

// events compares the reasons of the events since the last call.
func events(want ...string) func(*testEnv) {
	return func(s *testEnv) {
		var got []string
		for _, event := range s.events {
			got = append(got, event.Reason)
		}
		s.events = nil
		assert.Equal(s.t, "events", want, got)
	}
}
