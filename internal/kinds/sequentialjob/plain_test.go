package sequentialjob

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestOnlyWhatTheJobsShowIsStoredLater(t *testing.T) {
	type change func(s *testEnv)
	option := func(step int, set func(*v1alpha1.StepOptions)) change {
		return func(s *testEnv) { testbuilder.WithStepOptions(set)(&s.sj.Spec.Containers[step]) }
	}
	spec := func(set func(*v1alpha1.SequentialJobSpec)) change { return func(s *testEnv) { set(&s.sj.Spec) } }
	for name, row := range map[string]struct {
		prepare, end change // before the run, and while its first Job exists, which is complete unless end changes it
		want         time.Duration
	}{
		"the next step starts":                         {want: maxStatusLag},
		"the Job ended 20 s ago":                       {end: func(s *testEnv) { s.now = s.now.Add(20 * time.Second) }, want: maxStatusLag - 20*time.Second},
		"the Job ended 50 s ago":                       {end: func(s *testEnv) { s.now = s.now.Add(50 * time.Second) }},
		"this process has stored nothing":              {end: func(s *testEnv) { s.restartOperator() }},
		"the step fails":                               {end: func(s *testEnv) { testbuilder.Job(s.newestJob("one")).Failed("", "no", s.now) }},
		"the failure is tolerated":                     {prepare: option(0, func(o *v1alpha1.StepOptions) { o.OnFailure = v1alpha1.OnFailureContinue }), end: func(s *testEnv) { testbuilder.Job(s.newestJob("one")).Failed("", "no", s.now) }},
		"a Pod of the step failed":                     {end: func(s *testEnv) { s.newestJob("one").Status.Failed = 1 }},
		"the step has an output":                       {prepare: option(0, func(o *v1alpha1.StepOptions) { o.Outputs = true })},
		"the next step waits for an approval":          {prepare: option(1, func(o *v1alpha1.StepOptions) { o.RequireApproval = true })},
		"the next step has an expression":              {prepare: option(1, func(o *v1alpha1.StepOptions) { o.When = "true" })},
		"the next step is skipped":                     {prepare: option(1, func(o *v1alpha1.StepOptions) { o.When = "false" })},
		"the run has a workspace":                      {prepare: spec(func(s *v1alpha1.SequentialJobSpec) { s.Workspace = &v1alpha1.Workspace{} })},
		"the logs are archived":                        {prepare: spec(func(s *v1alpha1.SequentialJobSpec) { s.Archive = &v1alpha1.SequenceArchive{} })},
		"an ended Job is deleted":                      {prepare: spec(func(s *v1alpha1.SequentialJobSpec) { s.JobHistoryLimit = new(int32) })},
		"the run is suspended":                         {end: func(s *testEnv) { s.sj.Spec.Suspend = true }},
		"the spec changes":                             {end: func(s *testEnv) { s.sj.Generation++ }},
		"no step is stored as active":                  {end: func(s *testEnv) { s.sj.Status.Steps[0].Phase = v1alpha1.StepSucceeded }},
		"the Job does not name the generation":         {end: func(s *testEnv) { delete(s.newestJob("one").Annotations, v1alpha1.AnnotationGeneration) }},
		"the Job expires":                              {end: func(s *testEnv) { s.newestJob("one").Spec.TTLSecondsAfterFinished = new(int32) }},
		"a queue manages the Job":                      {end: func(s *testEnv) { s.newestJob("one").Labels[queueLabel] = "q" }},
		"the Job is of another controller":             {end: func(s *testEnv) { s.newestJob("one").Spec.ManagedBy = new("example.com/other") }},
		"the run fails, because its deadline exceeded": {prepare: spec(func(s *v1alpha1.SequentialJobSpec) { s.ActiveDeadlineSeconds = new(int64(1)) }), end: func(s *testEnv) { s.now = s.now.Add(5 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, sequence("one", "two", "three").Obj())
			if row.prepare != nil {
				row.prepare(s)
			}
			s.reconcile()
			testbuilder.Job(s.newestJob("one")).Complete(s.now)
			if row.end != nil {
				row.end(s)
			}
			d := s.decide(nil)
			require.True(t, d.RecordWithin == row.want && d.StatusChanged, "within %s, want %s; changed: %t", d.RecordWithin, row.want, d.StatusChanged)
		})
	}
}

func TestTheFinalizerOfAnEndedRunIsRemovedAsSoonAsItsStatusHadToBeStored(t *testing.T) {
	s := newTestEnv(t, sequence("one").Obj())
	s.reconcile()
	testbuilder.Job(s.newestJob("one")).Complete(s.now)
	s.reconcile()
	for _, want := range []time.Duration{maxStatusLag, maxStatusLag / 2, 0, 0} {
		require.Equal(t, want, s.decide(nil).ReleaseWithin)
		s.now = s.now.Add(maxStatusLag / 2)
	}
}

// Each run is that of a process which stores all at once, whatever is lost between two steps: the process, ended Jobs, their Pods, the
// cache of the newest Job.
func TestAnyProcessContinuesAfterTheNewestJob(t *testing.T) {
	all := []string{"one", "two", "three", "four"}
	for lossAfter := 1; lossAfter < len(all); lossAfter++ {
		for faults := range 1 << 4 {
			isRestarted, areJobsDeleted, arePodsGone, isStale := faults&1 > 0, faults&2 > 0, faults&4 > 0, faults&8 > 0
			name := fmt.Sprintf("after %d steps, restarted: %t, ended Jobs deleted: %t, Pods gone: %t, stale cache: %t", lossAfter, isRestarted, areJobsDeleted, arePodsGone, isStale)
			t.Run(name, func(t *testing.T) {
				s := startRun(t, sequence(all...))
				s.storesLater = true
				for i, step := range all[:lossAfter] {
					s.now = s.now.Add(time.Second)
					s.succeedStep(step)
					stored := s.stepStatus(step).Phase
					require.True(t, stored != v1alpha1.StepSucceeded && s.newestJob(all[i+1]) != nil, "step %s is stored as %s", step, stored)
				}
				for _, step := range all[:lossAfter] {
					job := s.newestJob(step)
					if arePodsGone {
						s.pods[job.UID] = nil
					}
					if areJobsDeleted {
						s.pass(lose(step))
					}
				}
				s.uncached[s.newestJob(all[lossAfter]).Name] = isStale
				if isRestarted {
					s.restartOperator()
				}
				for _, step := range all[lossAfter:] {
					s.reconcile()
					s.now = s.now.Add(time.Second)
					s.succeedStep(step)
				}
				s.pass(created(all...), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
				s.pass(steps("one: Succeeded", "two: Succeeded", "three: Succeeded", "four: Succeeded"))
			})
		}
	}
}

func TestAProcessStoresTheAttemptOfAnotherBeforeItCreatesTheJob(t *testing.T) {
	s := newTestEnv(t, sequence("one").Obj())
	d := s.decide(nil)
	s.record(d) // and crashes
	s.restartOperator()
	s.now = s.now.Add(10 * time.Second)
	d = s.decide(nil)
	require.True(t, d.CreateJob != nil && d.StatusChanged && d.RecordWithin == 0, "decision %+v", d)
}

func TestAJobThatAnotherProcessCreatedAgainIsNotLost(t *testing.T) {
	sj := sequence("one", "two").Obj()
	sj.Spec.OnLostJob = v1alpha1.LostJobRerun
	s := newTestEnv(t, sj).pass(wait(0))
	again := s.newestJob("one").DeepCopy()
	again.UID = "again"
	s.jobs, s.hasStored = []*batchv1.Job{again}, false // another client deleted the Job while this process was paused
	s.pass(wait(time.Second), created("one"), steps("one: Starting", "two: Pending"))
	s.pass(succeed("one"), created("one", "two"), steps("one: Succeeded", "two: Starting"))
}

func TestAProcessThatCreatedALaterJobBeforeTheOrderChangedKnowsNoEnd(t *testing.T) {
	s := startRun(t, sequence("one", "two"))
	s.createdUIDs[jobName(s.sj, 1, "two", 1)], s.hasStored = "earlier", false
	s.pass(wait(time.Second), created("one"), steps("one: Starting", "two: Pending"))
}

func TestAnOlderStateOfAJobUndoesNoProgress(t *testing.T) {
	s := startRun(t, sequence("one", "two", "three"))
	s.storesLater = true
	s.pass(succeed("one"))
	newest := s.newestJob("one").Status.Conditions
	s.newestJob("one").Status.Conditions, s.storesLater = nil, false
	s.pass(wait(time.Second), steps("one: Succeeded", "two: Starting", "three: Pending"))
	s.newestJob("one").Status.Conditions = newest
	s.pass(succeed("two"), created("one", "two", "three"))
}

func TestALaterJobProvesNothingIf(t *testing.T) {
	forge := func(s *testEnv, step string) {
		forged := approvedJob(s.sj, findStepSpec(&s.sj.Spec, step))
		forged.Annotations = map[string]string{v1alpha1.AnnotationRun: "1", v1alpha1.AnnotationGeneration: "1"}
		s.jobs = append(s.jobs, testbuilder.Job(forged).Created("forged", s.now).Complete(s.now).Obj())
	}
	waits := steps("one: Starting", "two: Pending", "gate: Pending", "four: Pending")
	isLost := steps("one: Failed, JobLost", "two: Skipped, PreviousStepFailed", "gate: Skipped, PreviousStepFailed", "four: Skipped, PreviousStepFailed")
	for name, story := range map[string]story{
		"its step requires an approval":             {func(s *testEnv) { forge(s, "gate") }, lose("one"), isLost},
		"a step before it requires an approval":     {func(s *testEnv) { forge(s, "four") }, lose("one"), isLost},
		"the Job of a step before it has not ended": {func(s *testEnv) { forge(s, "two") }, wait(time.Second), waits},
		"it was deleted together with a change that suspends the run": {
			storeLater(true), succeed("one"), func(s *testEnv) { s.jobs = s.jobs[:1] }, suspendRun, resumeRun,
			steps("one: Succeeded", "two: Failed, JobLost", "gate: Skipped, PreviousStepFailed", "four: Skipped, PreviousStepFailed"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			sj := sequence("one", "two", "gate", "four").Obj()
			sj.Spec.Containers[2].Step = &v1alpha1.StepOptions{RequireApproval: true}
			newTestEnv(t, sj).pass(wait(0)).pass(story...)
		})
	}
}
