package sequentialjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsAreCountedByState(t *testing.T) {
	type progress = v1alpha1.Progress
	type state = v1alpha1.StepCounts
	for title, test := range map[string]struct {
		story story
		state state
		want  progress
		text  string // of containers and of finally
	}{
		"at the start": {nil, state{Active: 1}, progress{CurrentIndex: new(int32(0)), CurrentStep: "lint"}, "0/2 0/1"},
		"after a successful step": {
			story{succeed("lint")},
			state{Active: 1, Succeeded: 1},
			progress{CurrentIndex: new(int32(1)), CurrentStep: "build", CompletedIndices: []int32{0}},
			"1/2 0/1",
		},
		"a tolerated failure": {story{fail("lint")}, state{Active: 1, Failed: 1}, progress{CurrentIndex: new(int32(1)), CurrentStep: "build"}, "0/2 0/1"},
		"after a failure that fails the run": {
			story{succeed("lint"), fail("build")}, state{Active: 1, Succeeded: 1, Failed: 1}, progress{
				CurrentIndex: new(int32(2)), CurrentStep: "cleanup", CompletedIndices: []int32{0},
				FailedIndex: new(int32(1)), FailureReason: "BackoffLimitExceeded",
			}, "1/2 0/1",
		},
		"at the end": {story{succeed("lint", "build", "cleanup")}, state{Succeeded: 3}, progress{CompletedIndices: []int32{0, 1, 2}}, "2/2 1/1"},
	} {
		t.Run(title, func(t *testing.T) {
			sj := sequence().Step("lint", testbuilder.ContinueOnFailure()).Step("build").Finally("cleanup")
			s := startRun(t, sj).pass(test.story...)
			assert.Equal(t, "state", test.state, s.sj.Status.State)
			assert.Equal(t, "progress", test.want, s.sj.Status.Progress)
			assert.Equal(t, "text", test.text, FormatProgress(s.sj, false)+" "+FormatProgress(s.sj, true))
		})
	}
}

func TestRunAndStepsHaveStartAndEndTimes(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	t0 := s.now
	for _, step := range []string{"build", "test"} {
		s.now = s.now.Add(time.Minute)
		s.succeedStep(step)
	}
	build, test, status := s.stepStatus("build"), s.stepStatus("test"), s.sj.Status
	got := []time.Time{status.StartTime.Time, build.StartTime.Time, build.CompletionTime.Time, test.StartTime.Time, test.CompletionTime.Time, status.CompletionTime.Time}
	want := []time.Time{t0, t0, t0.Add(time.Minute), t0.Add(time.Minute), t0.Add(2 * time.Minute), t0.Add(2 * time.Minute)}
	assert.Equal(t, "run's start, build's, test's, run's end", want, got)
}

func TestShortStepIsRecordedAtItsStartAndItsEnd(t *testing.T) {
	s := startRun(t, sequence("build"))
	decision := s.reconcileAfter(59 * time.Second)
	require.True(t, !decision.StatusChanged && decision.RequeueAfter == time.Second, "want no write for another second, got %+v", decision)
	long := startRun(t, sequence("build"))
	long.reconcileAfter(time.Minute)
	s.succeedStep("build")
	for _, s := range []*testEnv{s, long} {
		assert.Equal(t, "UID of the Job in the status", s.newestJob("build").UID, s.stepStatus("build").JobUID)
	}
}

func TestEventsOfARun(t *testing.T) {
	later, completed := wait(time.Minute), events("JobStarted", "JobCompleted", "Completed")
	change := edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].WorkingDir = "/x" })
	runScenarios(t, map[string]scenario{
		"success, observed while running":    {sequence("build"), story{later, succeed("build"), later, completed}},
		"success, observed only at the end":  {sequence("build"), story{succeed("build"), later, completed}},
		"a changed spec of a run that waits": {sequence("build").Suspend(), story{change, later, events("Suspended", "SpecChanged")}},
		"suspension and resumption":          {sequence("build").Suspend(), story{resumeRun, later, events("Suspended", "SpecChanged", "Resumed", "JobStarted")}},
		"a lost Job":                         {sequence("build"), story{later, lose("build"), later, events("JobStarted", "JobFailed", "Failed")}},
		"a rerun": {sequence("build"), story{
			fail("build"), events("JobStarted", "JobFailed", "Failed"),
			rerun("Failed"), succeed("build"), later, events("RerunStarted", "JobStarted", "JobCompleted", "Completed"),
		}},
		"deletion": {sequence("build"), story{func(s *testEnv) { s.deleteSequentialJob() }, events("JobStarted"), removeJobs, events("Terminated")}},
	})
}

// The rows are those of docs/reference/states.md.
func TestConditionsOfEachStateOfARun(t *testing.T) {
	refused := func(class decision.Class) story {
		return story{func(s *testEnv) {
			s.createRefusals["build"] = &decision.Refusal{Class: class, Step: "build", Message: "no"}
		}, wait(0)}
	}
	runPod := func(s *testEnv) { s.runPod("build") }
	deny := func(s *testEnv) { s.policies = testbuilder.AllowImages("other:*") }
	reverse := edit(func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(spec.Containers) })
	one := func() *testbuilder.SequentialJobBuilder { return sequence("build") }
	withFinally := func() *testbuilder.SequentialJobBuilder { return sequence("build").Finally("cleanup") }
	const waits, fails, succeeds = status.InProgressStatus, status.FailedStatus, status.CurrentStatus
	for title, test := range map[string]struct {
		sj         *testbuilder.SequentialJobBuilder
		story      story
		conditions string // that are True
		reason     string
		want       status.Status
	}{
		"the first step starts":       {one(), story{wait(0)}, "Reconciling", v1alpha1.ReasonWaiting, waits},
		"a step runs":                 {one(), story{wait(0), runPod}, "Reconciling Progressing", v1alpha1.ReasonRunning, waits},
		"a finally step runs":         {withFinally(), story{wait(0), succeed("build")}, "Reconciling Progressing", v1alpha1.ReasonRunningFinally, waits},
		"it runs after a failure":     {withFinally(), story{wait(0), fail("build")}, "Reconciling Progressing", v1alpha1.ReasonRunningFinally, waits},
		"a quota is exceeded":         {one(), refused(decision.QuotaExceeded), "Reconciling", v1alpha1.ReasonQuotaExceeded, waits},
		"another object has its name": {one(), refused(decision.AlreadyExists), "Stalled", v1alpha1.ReasonNameTaken, fails},
		"its only Job is refused":     {one(), refused(decision.Invalid), "Stalled Failed", v1alpha1.ReasonStepFailed, fails},
		"an image is not allowed":     {one(), story{deny, wait(0)}, "Stalled", v1alpha1.ReasonImageNotAllowed, fails},
		"suspending":                  {one(), story{wait(0), suspendRun}, "Reconciling", v1alpha1.ReasonSuspending, waits},
		"suspended":                   {one().Suspend(), story{wait(0)}, "", v1alpha1.ReasonSuspended, waits},
		"completed":                   {one(), story{wait(0), succeed("build")}, "Ready Available", v1alpha1.ReasonCompleted, succeeds},
		"failed":                      {one(), story{wait(0), fail("build")}, "Stalled Failed", v1alpha1.ReasonStepFailed, fails},
		"failed, then a rerun starts": {one(), story{wait(0), fail("build"), rerun("Start")}, "Reconciling", v1alpha1.ReasonWaiting, waits},
		"completed, invalid rerun":    {one(), story{wait(0), succeed("build"), rerun("nope")}, "Stalled Available", v1alpha1.ReasonRerunInvalid, fails},
		"completed, invalid change":   {one(), story{wait(0), succeed("build"), edit(setImage(" a"))}, "Stalled Available", v1alpha1.ReasonInvalid, fails},
		"running, invalid change":     {sequence("build", "test"), story{wait(0), runPod, reverse}, "Reconciling Progressing", v1alpha1.ReasonRunning, waits},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestEnv(t, test.sj.Obj()).pass(test.story...)
			var got []string
			for _, kind := range []string{
				v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
				v1alpha1.ConditionAvailable, v1alpha1.ConditionProgressing, v1alpha1.ConditionFailed,
			} {
				if meta.IsStatusConditionTrue(s.sj.Status.Conditions, kind) {
					got = append(got, kind)
				}
			}
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				assert.Equal(t, "reason of "+kind, test.reason, meta.FindStatusCondition(s.sj.Status.Conditions, kind).Reason)
			}
			assert.Equal(t, "conditions that are True", test.conditions, strings.Join(got, " "))
			hasEnded := strings.Contains(test.conditions, "Available") || strings.Contains(test.conditions, "Failed")
			assert.Equal(t, "has a completionTime", hasEnded, s.sj.Status.CompletionTime != nil)
			for _, c := range s.sj.Status.Conditions {
				assert.Equal(t, "generation of "+c.Type, s.sj.Generation, c.ObservedGeneration)
			}
			s.sj.APIVersion, s.sj.Kind = v1alpha1.GroupVersion.String(), "SequentialJob"
			kstatustest.AssertKstatus(t, s.sj, test.want)
		})
	}
}

func (s *testEnv) keptJobs() []string {
	var names []string
	for _, job := range s.jobs {
		if job.DeletionTimestamp.IsZero() {
			names = append(names, job.Labels[v1alpha1.LabelStep])
		}
	}
	return names
}

func TestOldestJobsBeyondTheHistoryLimitAreDeleted(t *testing.T) {
	later := func(step string) func(*testEnv) {
		return func(s *testEnv) {
			s.now = s.now.Add(time.Minute)
			s.succeedStep(step)
		}
	}
	threeOfFour := scenario{sequence("a", "b", "c", "d"), story{later("a"), later("b"), later("c")}}
	twoAttempts := scenario{sequence().Step("a", retry(2, 10, 600)), story{fail("a"), wait(10 * time.Second), fail("a")}}
	for title, test := range map[string]struct {
		scenario
		limit *int32
		want  []string
	}{
		"without a limit":                {threeOfFour, nil, []string{"a", "b", "c", "d"}},
		"a limit of 2":                   {threeOfFour, new(int32(2)), []string{"b", "c", "d"}},
		"a limit of 0":                   {threeOfFour, new(int32(0)), []string{"d"}},
		"Jobs of earlier runs count":     {scenario{sequence("a"), story{succeed("a"), rerun("Start"), later("a")}}, new(int32(1)), []string{"a"}},
		"not the Job of a step in doubt": {scenario{sequence("build"), story{seen(), succeed("build")}}, new(int32(0)), []string{"build"}},
		"Jobs of failed attempts count":  {twoAttempts, new(int32(1)), []string{"a"}},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestEnv(t, test.sj.Obj())
			s.sj.Spec.JobHistoryLimit = test.limit
			s.pass(wait(0)).pass(test.story...)
			assert.Equal(t, "Jobs that are kept", test.want, s.keptJobs())
		})
	}
}

func TestExhaustedQuotaOfJobsNamesTheFinishedOnes(t *testing.T) {
	const condition, message = v1alpha1.ConditionResourcesUnavailable, "exceeded quota: jobs, requested: count/jobs.batch=1"
	s := newTestEnv(t, testbuilder.SequentialJob("x", "ns").Step("a").Step("b").Obj())
	refusal := &decision.Refusal{Class: decision.QuotaExceeded, Message: message}
	s.createRefusals = map[string]*decision.Refusal{"a": refusal, "b": refusal}
	s.pass(wait(0), hasCondition(condition, "True QuotaExceeded: "+message), accept("a"), succeed("a"))
	s.pass(hasCondition(condition, "True QuotaExceeded: 1 finished Jobs of this SequentialJob count too: set spec.jobHistoryLimit; "+message))
}

func TestRetriesAreVisible(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("x", "ns").Step("a"))
	job := s.newestJob("a")
	job.Status.Failed = 2
	s.pods[job.UID] = []corev1.Pod{testbuilder.Pod("a").Exited(3, "no connection").Obj()}
	for _, happens := range []func(*testEnv){wait(5 * time.Second), succeed("a")} {
		s.pass(happens)
		step := s.stepStatus("a")
		require.True(t, step.FailedPods == 2 && step.ExitCode != nil && *step.ExitCode == 3, "%d failed Pods, exit code %v", step.FailedPods, step.ExitCode)
	}
}

func TestFailureOfReconciliationsIsTheReasonOfReady(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("x", "ns").Step("a"))
	decide := func(failure string) Decision {
		return Decide(Observation{SequentialJob: s.sj.DeepCopy(), Jobs: slices.Clone(s.jobs), CreatedJobs: s.createdUIDs, HasStored: s.hasStored, Now: s.now, Failure: failure})
	}
	decision := decide("jobs.batch is forbidden")
	s.record(decision)
	s.pass(hasCondition(v1alpha1.ConditionReady, "False RequestFailed: jobs.batch is forbidden"))
	again := decide("jobs.batch is forbidden")
	require.True(t, !again.StatusChanged, "the same failure changes the status again")
	s.record(decide(""))
	s.pass(hasCondition(v1alpha1.ConditionReady, `False Waiting: waiting for step "a" to start`))
}

func TestRelevantUpdatesOfAJob(t *testing.T) {
	now := time.Unix(1, 0)
	sj := sequence("build").Step("test", testbuilder.StepStartDeadline(30)).Obj()
	createdJob := func(step int) *testbuilder.JobBuilder {
		return testbuilder.Job(stepJob(sj, &sj.Spec.Containers[step], 1, 1)).Created("job", now)
	}
	running := func() *testbuilder.JobBuilder { return createdJob(0).Active(now) }
	resumed := running().Suspended(now).Obj().DeepCopy()
	resumed.Spec.Suspend = new(false)
	for name, test := range map[string]struct {
		before, after *batchv1.Job
		want          bool
	}{
		"no change":                              {before: running().Obj(), after: running().Obj()},
		"a Pod starts":                           {before: createdJob(0).Obj(), after: running().Obj()},
		"the Job gets SuccessCriteriaMet":        {before: running().Obj(), after: running().Condition(batchv1.JobSuccessCriteriaMet, "", "", now).Obj()},
		"the Job completes":                      {before: running().Obj(), after: running().Complete(now).Obj(), want: true},
		"the Job fails":                          {before: running().Obj(), after: running().Failed("x", "", now).Obj(), want: true},
		"the Job is deleted":                     {before: running().Obj(), after: running().Deleted(now).Obj(), want: true},
		"the Job is suspended":                   {before: running().Obj(), after: running().Suspended(now).Obj(), want: true},
		"the Job is resumed":                     {before: running().Suspended(now).Obj(), after: resumed, want: true},
		"the start deadline begins":              {before: createdJob(1).Obj(), after: createdJob(1).PodPending(now).Obj(), want: true},
		"a Pod starts within the start deadline": {before: createdJob(1).PodPending(now).Obj(), after: createdJob(1).Active(now).Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "is relevant", test.want, IsRelevantUpdate(test.before, test.after))
		})
	}
}
