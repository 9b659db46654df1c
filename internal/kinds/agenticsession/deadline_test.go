package agenticsession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// wait lets time pass as long as a Pod waits, and does what the operator decides meanwhile.
func (s *scenario) wait(d time.Duration) *scenario {
	s.t.Helper()
	for end := s.Now.Add(d); s.Now.Before(end); {
		decision := s.decideAndRecord()
		if decision.RequeueAfter <= 0 {
			s.t.Fatal("nothing reconciles the waiting session")
		}
		s.advanceClock(min(decision.RequeueAfter, end.Sub(s.Now)))
		if over := s.newestJob().Status.StartTime.Add(time.Duration(s.jobDeadlineSeconds()) * time.Second); !over.After(s.Now) {
			s.t.Fatal("the deadline of the waiting Job is over")
		}
	}
	return s
}

func TestTimeoutDoesNotCountWhileThePodWaits(t *testing.T) {
	for title, change := range map[string]func(spec *v1alpha1.AgenticSessionSpec){
		"a session":              func(*v1alpha1.AgenticSessionSpec) {},
		"an interactive session": setInteractive,
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withTimeout(100), change).startAttempt()
			s.newestPod().Spec.NodeName = ""
			s.wait(30 * time.Hour).startRunner().decideAndRecord()
			if got := s.jobDeadlineSeconds(); got != 30*60*60+100 {
				t.Errorf("deadline of %d seconds, want 100 after 30 hours", got)
			}
			s.advanceClock(40*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
			if got := s.Session.Status.ActiveDuration.Seconds(); got != 40 {
				t.Errorf("%v seconds count, want 40", got)
			}
		})
	}
}

// Without that, an interactive runner that never accepts connections would run without a limit.
func TestTimeoutCountsFromTheStartOfARunnerThatIsNotReady(t *testing.T) {
	s := newScenario(t, setInteractive, withTimeout(100)).startAttempt().advanceClock(time.Minute).startRunner()
	s.newestRunnerStatus().Ready = false
	s.wantPhase(v1alpha1.SessionCreating, "")
	if got := s.jobDeadlineSeconds(); got != 160 {
		t.Errorf("deadline of %d seconds, want 160", got)
	}
}

func TestTimeoutOfARunningSessionCanBeChanged(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt().advanceClock(10 * time.Second).startRunner()
	s.decideAndRecord()
	for _, change := range []struct {
		timeout int
		want    int64
	}{{200, 210}, {50, 60}, {0, -1}, {7200, 7210}} {
		s.updateSpec(withTimeout(change.timeout)).wantPhase(v1alpha1.SessionRunning, "")
		if got := s.jobDeadlineSeconds(); got != change.want {
			t.Errorf("with timeout %d the deadline is %d, want %d", change.timeout, got, change.want)
		}
		if decision := s.decideAndRecord(); decision.SetDeadline != nil {
			t.Error("the deadline is set again")
		}
	}
}

func TestChangedSessionRunnerDoesNotChangeTheLimitOfARunningAttempt(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"deleted":       func(s *scenario) { s.Runner = nil },
		"limit removed": func(s *scenario) { s.Runner.Spec.Limits.Timeout = nil },
		"limit raised":  func(s *scenario) { s.Runner.Spec.Limits.Timeout = seconds(1000) },
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			s.Runner.Spec.Limits.Timeout = seconds(30)
			s.startAttempt()
			change(s)
			s.startRunner().decideAndRecord()
			if got := s.jobDeadlineSeconds(); got != 30 {
				t.Errorf("deadline of %d seconds, want 30", got)
			}
		})
	}
}

// The node's clock may be wrong: a session neither gets time for that, nor loses more than it waited.
func TestStartOnAWrongClockIsWithinTheJob(t *testing.T) {
	for title, test := range map[string]struct {
		wrong time.Duration
		want  int64
	}{"ahead": {time.Hour, 160}, "behind": {-time.Hour, 100}} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, withTimeout(100)).startAttempt().advanceClock(time.Minute).startRunner()
			running := s.newestRunnerStatus().State.Running
			running.StartedAt.Time = running.StartedAt.Add(test.wrong)
			s.decideAndRecord()
			if got := s.jobDeadlineSeconds(); got != test.want {
				t.Errorf("deadline of %d seconds, want %d", got, test.want)
			}
		})
	}
}

// A Pod that no operator observed may have run all the time.
func TestTimeOfAnUnobservedPodCounts(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt()
	s.decideAndRecord()
	s.removeJobAndPod().advanceClock(time.Hour).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonPodLost)
	if got := s.Session.Status.ActiveDuration.Seconds(); got != 100 {
		t.Errorf("%v seconds count, want 100", got)
	}
}

func TestPodThatWaitedUntilTheDeadlineUsedNoTime(t *testing.T) {
	s := newScenario(t, withTimeout(100)).startAttempt()
	s.decideAndRecord()
	s.advanceClock(2*time.Hour).endJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	s.newestPod().Status.Phase = corev1.PodFailed
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	if got := s.Session.Status.ActiveDuration.Seconds(); got != 0 {
		t.Errorf("%v seconds count, want 0", got)
	}
	s.updateSpec(requestNextRun).startAttempt()
}
