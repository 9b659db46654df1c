package sequentialjob

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
	for title, test := range map[string]struct {
		scenario
		limit *int32
		want  []string
	}{
		"without a limit":               {threeOfFour, nil, []string{"a", "b", "c", "d"}},
		"a limit of 2":                  {threeOfFour, new(int32(2)), []string{"b", "c", "d"}},
		"a limit of 0":                  {threeOfFour, new(int32(0)), []string{"d"}},
		"Jobs of earlier runs count":    {scenario{sequence("a"), story{succeed("a"), rerun("Start"), later("a")}}, new(int32(1)), []string{"a"}},
		"Jobs of failed attempts count": {scenario{sequence().Step("a", retry(2, 10, 600)), story{fail("a")}}, new(int32(0)), nil},
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
	s := startRun(t, testbuilder.SequentialJob("x", "ns").Step("a").Step("b"))
	s.createRefusals["b"] = &decision.Refusal{Class: decision.QuotaExceeded, Step: "b", Message: "exceeded quota: jobs, requested: count/jobs.batch=1"}
	s.succeedStep("a")
	want := "1 finished Jobs of this SequentialJob count too: set spec.jobHistoryLimit; exceeded quota"
	require.Contains(t, meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionResourcesUnavailable).Message, want)
}

func TestRetriesAreVisible(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("x", "ns").Step("a"))
	job := s.newestJob("a")
	job.Status.Failed = 2
	s.pods[job.UID] = []corev1.Pod{testbuilder.Pod("a").Exited(3, "no connection").Obj()}
	for _, happens := range []func(*testEnv){wait(5 * time.Second), succeed("a")} {
		s.pass(happens)
		if step := s.stepStatus("a"); step.FailedPods != 2 || step.ExitCode == nil || *step.ExitCode != 3 {
			t.Errorf("%d failed Pods, exit code %v", step.FailedPods, step.ExitCode)
		}
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
