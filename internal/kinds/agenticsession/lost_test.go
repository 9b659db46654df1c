package agenticsession

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// runnerEnds are the ends of a runner that started.
var runnerEnds = map[string]struct {
	end    func(s *scenario, message string)
	reason string
}{
	"is evicted": {func(s *scenario, message string) { s.disrupt("EvictionByEvictionAPI").exitRunner(143, message) }, v1alpha1.ReasonEvicted},
	"is killed for its memory": {func(s *scenario, message string) {
		s.exitRunner(137, message).newestRunnerStatus().State.Terminated.Reason = v1alpha1.ReasonOOMKilled
	}, v1alpha1.ReasonOOMKilled},
	"exceeds its deadline": {func(s *scenario, message string) {
		s.exitRunner(143, message).newestJob().Status.Conditions[0].Reason = batchv1.JobReasonDeadlineExceeded
	}, v1alpha1.ReasonDeadlineExceeded},
	"is deleted": {func(s *scenario, message string) {
		s.deletePod()
		s.exitRunner(143, message)
	}, v1alpha1.ReasonPodDeleted},
	"fails":     {func(s *scenario, message string) { s.exitRunner(7, message) }, v1alpha1.ReasonExitedWithError},
	"completes": {func(s *scenario, message string) { s.exitRunner(0, message) }, v1alpha1.ReasonCompleted},
}

// The cache may show the end of a Job before that of its Pod, and before the handler of deletions has remembered its Pod.
func TestTheEndOfAPodCountsIfItArrivesSoonAfterTheEndOfItsJob(t *testing.T) {
	for runner, e := range runnerEnds {
		for _, delay := range []time.Duration{0, time.Second, maxPodLag - time.Second, maxPodLag, time.Hour} {
			for _, isDeleted := range []bool{true, false} {
				t.Run(fmt.Sprintf("the runner %s, its Pod ends after %s, deleted %v", runner, delay, isDeleted), func(t *testing.T) {
					s := newRunningScenario(t)
					before := *s.newestPod().DeepCopy()
					e.end(s, "")
					pods := s.Pods
					want, wantExitCode := e.reason, true
					if delay > 0 {
						if s.Pods = nil; !isDeleted {
							s.Pods = []corev1.Pod{before}
						}
						after := s.wantPhase(v1alpha1.SessionRunning, "").RequeueAfter
						require.True(t, after > 0 && after <= maxPodLag, "decides again after %s", after)
						s.advanceClock(delay)
					}
					if delay < maxPodLag {
						if s.Pods = pods; isDeleted {
							s.DeletedPod = pods[0].UID
						}
					} else if wantExitCode = false; want != v1alpha1.ReasonCompleted && want != v1alpha1.ReasonDeadlineExceeded { // the Job says the others
						want = v1alpha1.ReasonPodLost
					}
					s.decideAndRecord()
					attempts := s.Session.Status.Attempts
					require.True(t, len(attempts) == 1 && attempts[0].Reason == want && (attempts[0].ExitCode != nil) == wantExitCode,
						"%+v, want %s", attempts, want)
				})
			}
		}
	}
}

// Whatever ends a runner, the message carries what the agent or git said last.
func TestAFailureCarriesTheLastMessageOfTheRunner(t *testing.T) {
	for runner, e := range runnerEnds {
		for _, message := range []string{"", "cloning shop: no space left", `{"summary": "cloning shop: no space left"}`} {
			t.Run(fmt.Sprintf("the runner %s after %q", runner, message), func(t *testing.T) {
				s := newRunningScenario(t)
				e.end(s, message)
				s.decideAndRecord()
				attempt, condition := s.Session.Status.Attempts[0], s.findCondition(v1alpha1.ConditionSucceeded)
				wants := message != "" && e.reason != v1alpha1.ReasonCompleted
				for _, got := range []string{attempt.Message, condition.Message} {
					require.True(t, attempt.Reason == e.reason && strings.HasSuffix(got, ": cloning shop: no space left") == wants,
						"%s: %q", attempt.Reason, got)
				}
			})
		}
	}
}

// Only the time of the runner counts: its sidecars push and archive after it.
func TestTimeCountsUntilTheEndOfTheRunner(t *testing.T) {
	for title, test := range map[string]struct {
		finished, want time.Duration
	}{"before its Job": {40 * time.Second, 40 * time.Second}, "after its Job, on a wrong clock": {time.Hour, 100 * time.Second}, "at no time that is known": {0, 100 * time.Second}} {
		t.Run(title, func(t *testing.T) {
			s := newRunningScenario(t)
			s.advanceClock(100*time.Second).exitRunner(0, "")
			finished := &s.newestRunnerStatus().State.Terminated.FinishedAt
			if *finished = (metav1.Time{}); test.finished != 0 {
				*finished = metav1.NewTime(testStartTime.Add(test.finished))
			}
			s.wantPhase(v1alpha1.SessionCompleted, "")
			s.wantActiveSeconds(test.want.Seconds())
		})
	}
}

// A Pod may have run while no operator did. Its cost is then what it could be, and not zero.
func TestAnAttemptThatNobodySawStartCostsTheRestOfTheBudget(t *testing.T) {
	for title, test := range map[string]struct {
		prepare func(*scenario)
		want    v1alpha1.Number
	}{
		"its Job is deleted": {func(*scenario) {}, "3"},
		"it stops now": {func(s *scenario) { s.updateSpec(suspend).decideAndRecord() }, "unknown"}, // its Pod would be remembered
		"it has stopped for an hour": {func(s *scenario) {
			s.updateSpec(suspend).decideAndRecord()
			s.advanceClock(time.Hour)
		}, "3"},
		"it was never created": {func(s *scenario) {
			s.Session.Status.Attempt.JobUID = ""
			s.Jobs = nil
			s.updateSpec(suspend)
		}, "unknown"},
	} {
		t.Run(title, func(t *testing.T) {
			s := setModel(newScenario(t, withMaxCost("3"))).startAttempt()
			s.newestJob().Status.StartTime, s.Pods = nil, nil
			s.decideAndRecord()
			test.prepare(s)
			s.Jobs = nil
			s.decideAndRecord()
			s.wantTotalCost(test.want)
		})
	}
}

// The cost of an attempt counts once, also if the next run, which starts in the same decision, has no budget.
func TestTheCostOfARunBeforeARefusedRunCountsOnce(t *testing.T) {
	s := newRunningScenario(t, withMaxCost("1"))
	s.exitRunner(0, `{"costUSD": 2}`).updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.wantTotalCost("2")
}
