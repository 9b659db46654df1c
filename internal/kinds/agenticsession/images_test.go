package agenticsession

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestASessionWaitsUntilPoliciesAllowAllItsImages(t *testing.T) {
	for title, test := range map[string]struct {
		change      func(*scenario)
		wantMessage string
	}{
		"the runner's image": {
			func(s *scenario) { s.Policies = testbuilder.AllowImages("other:*") },
			`image "runner:1" of container "runner" is not allowed by Policy team, which allows: other:*`,
		},
		"the image of a sidecar": {
			func(s *scenario) {
				s.Policies = testbuilder.AllowImages("runner:*")
				testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
			},
			`image "proxy:1" of init container "proxy" is not allowed by Policy team, which allows: runner:*`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t)
			test.change(s)
			if decision := s.decideAndRecord(); decision.CreateJob != nil || len(decision.ApplyObjects) > 0 {
				t.Errorf("the session starts: %+v", decision)
			}
			s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
			if got := meta.FindStatusCondition(s.Session.Status.Conditions, v1alpha1.ConditionReady).Message; got != test.wantMessage {
				t.Errorf("the message is %q, want %q", got, test.wantMessage)
			}
			s.Policies = policy.Selection{}
			if decision := s.decideAndRecord(); decision.CreateJob == nil {
				t.Error("the session does not start although no Policy forbids its images")
			}
		})
	}
}

func TestASessionThatWaitsTooLongForAPolicyFails(t *testing.T) {
	s := newScenario(t)
	s.Policies = testbuilder.AllowImages("other:*")
	s.decideAndRecord()
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonImageNotAllowed)
}

func TestAChangedPolicyAffectsTheNextAttemptOnly(t *testing.T) {
	s := newScenario(t, withRetryLimit(1)).startAttempt().startRunner()
	s.Policies = testbuilder.AllowImages("other:*")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.exitRunner(1, "").advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonImageNotAllowed)
}

// The operator may have ended between the record of an attempt and the creation of its Job.
func TestAnAttemptWithoutAJobIsNotContinuedAgainstAPolicy(t *testing.T) {
	s := newScenario(t)
	s.decideAndRecord()
	s.Policies = testbuilder.AllowImages("other:*")
	if decision := s.decideAndRecord(); decision.CreateJob != nil || decision.Status.Attempt.JobName != "" {
		t.Errorf("the attempt continues: %+v", decision)
	}
}
