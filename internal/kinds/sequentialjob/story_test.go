package sequentialjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// A story is what happens to a run after its first reconciliation, and what must be true in between.
type story []func(*testEnv)

// A scenario is a SequentialJob and the story of its run.
type scenario struct {
	sj    *testbuilder.SequentialJobBuilder
	story story
}

// runScenarios runs scenarios as subtests with their titles.
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

func fail(step string) func(*testEnv) { return func(s *testEnv) { s.failStep(step) } }

// lose removes a step's Job.
func lose(step string) func(*testEnv) {
	return func(s *testEnv) {
		job := s.newestJob(step)
		s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j == job })
		s.reconcile()
	}
}

// removeJobs completes deletions.
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

// rerun requests another run.
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

// runsImage compares the image of the newest Job of a step.
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
