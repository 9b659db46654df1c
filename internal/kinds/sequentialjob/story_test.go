package sequentialjob

import (
	"strconv"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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
		t.Run(title, func(t *testing.T) {
			startRun(t, scenario.sj).pass(scenario.story...)
		})
	}
}

// pass lets the run pass through a story.
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

// sequence returns a SequentialJob with these steps.
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

func lose(step string) func(*testEnv) { return func(s *testEnv) { s.loseJob(step) } }

// removeJobs completes deletions.
func removeJobs(s *testEnv) { s.removeDeletedJobs() }

func edit(change func(*v1alpha1.SequentialJobSpec)) func(*testEnv) {
	return func(s *testEnv) {
		s.changeSpec(change)
		s.reconcile()
	}
}

// removeFirstStep removes it from the spec, as is possible without the webhook.
func removeFirstStep(spec *v1alpha1.SequentialJobSpec) { spec.Containers = spec.Containers[1:] }

func suspendRun(s *testEnv) { edit(setSuspendTrue)(s) }
func resumeRun(s *testEnv)  { edit(setSuspendFalse)(s) }

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

func steps(want ...string) func(*testEnv) { return func(s *testEnv) { s.wantSteps(want...) } }

func created(want ...string) func(*testEnv) { return func(s *testEnv) { s.wantCreated(want...) } }

func phase(want v1alpha1.SequentialJobPhase, reason string) func(*testEnv) {
	return func(s *testEnv) { s.wantPhase(want, reason) }
}

func hasCondition(kind, want string) func(*testEnv) {
	return func(s *testEnv) { s.wantCondition(kind, want) }
}

func events(want ...string) func(*testEnv) { return func(s *testEnv) { s.wantEvents(want...) } }
