package agenticsession

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Decide returns the next actions of a session.
func Decide(observation Observation) Decision {
	if !observation.Session.DeletionTimestamp.IsZero() { // the garbage collector deletes all owned objects
		return Decision{Status: *observation.Session.Status.DeepCopy()}
	}
	f := newFacts(observation)
	o := newOutcome(f)
	n := newNext(f, &o)
	return report(f, &o, &n)
}

// facts are the observation, and what follows from it alone. No stage changes them.
type facts struct {
	Observation
	spec *v1alpha1.AgenticSessionSpec
	// now is the time of the decision in the precision of the API.
	now metav1.Time
	// settings of the session; nil if they are refused or not known.
	settings *runnerSettings
	// accepted is the condition SpecAccepted.
	accepted decision.State
}

func newFacts(observation Observation) *facts {
	f := &facts{Observation: observation, spec: &observation.Session.Spec, now: metav1.NewTime(observation.Now.Truncate(time.Second))}
	errs, reason := Validate(f.Session), v1alpha1.ReasonInvalid
	if len(errs) == 0 {
		reason = v1alpha1.ReasonNotAllowed
	}
	var settings *runnerSettings
	if f.Runner != nil {
		resolved, refused := resolveSettings(f.Session, f.Runner)
		settings, errs = resolved, append(errs, refused...)
	}
	switch {
	case len(errs) > 0:
		f.accepted = decision.False(reason, errs.ToAggregate().Error())
	case f.Runner == nil:
		f.accepted = decision.State{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonRunnerNotFound,
			Message: "SessionRunner " + f.spec.Runner + " does not exist; create it or set spec.runner",
		}
	default:
		f.settings, f.accepted = settings, decision.True(v1alpha1.ReasonAccepted, "")
	}
	return f
}

// unchanged, as the new state of a condition, keeps the condition.
var unchanged decision.State

func (f *facts) setCondition(status *v1alpha1.AgenticSessionStatus, conditionType string, state decision.State) {
	if state != unchanged {
		state.Message = decision.TruncateMessage(state.Message, maxConditionMessageBytes)
		decision.SetState(&status.Conditions, f.Session.Generation, f.now, conditionType, state)
	}
}

// findJob returns the session's Job with this name; nil if it does not exist. A Job that the cache does not contain is
// a question, because the cache may be stale.
func (f *facts) findJob(name string) (*batchv1.Job, *Question) {
	if job, answered := f.Answers.Jobs[name]; answered {
		return job, nil
	}
	for _, job := range f.Jobs {
		if job.Name == name && metav1.IsControlledBy(job, f.Session) {
			return job, nil
		}
	}
	if f.Answers.Listed {
		return nil, nil
	}
	return nil, &Question{JobName: name}
}

// retryInterval returns the time until the operator tries again to remove the cause of a condition: as long as the
// condition has been False, from minRetryInterval to maxRetryInterval.
func (f *facts) retryInterval() time.Duration {
	age := time.Duration(0)
	if c := meta.FindStatusCondition(f.Session.Status.Conditions, v1alpha1.ConditionBlocked); c != nil && c.Status == metav1.ConditionTrue {
		age = f.Now.Sub(c.LastTransitionTime.Time)
	}
	return min(max(age, minRetryInterval), maxRetryInterval)
}

// blockedBy returns the problem that the session reports as the reason why it is blocked, if it has one of these reasons; nil otherwise.
func (f *facts) blockedBy(reasons ...string) *decision.Problem {
	c := meta.FindStatusCondition(f.Session.Status.Conditions, v1alpha1.ConditionBlocked)
	if c == nil || !slices.Contains(reasons, c.Reason) {
		return nil
	}
	return &decision.Problem{Reason: c.Reason, Message: c.Message}
}

// queuedSince returns since when a session that waits for its turn has waited.
func (f *facts) queuedSince() *metav1.Time { return cmp.Or(f.Session.Status.QueuedSince, &f.now) }

// IsRerunRequested reports whether the spec requests a run that the status does not record.
func IsRerunRequested(s *v1alpha1.AgenticSession, status *v1alpha1.AgenticSessionStatus) bool {
	return s.Spec.Rerun != nil && s.Spec.Rerun.ID != status.RerunID
}

// IsAtRest reports whether no attempt of a session is open, and none starts unless its spec changes.
func IsAtRest(s *v1alpha1.AgenticSession) bool {
	last := lastRun(&s.Status)
	switch {
	case s.Status.Attempt.JobName != "" || last == nil || last.Outcome == v1alpha1.RunRetried || IsRerunRequested(s, &s.Status):
		return false
	case last.Outcome != v1alpha1.RunStopped:
		return true
	}
	return s.Spec.Suspend || !isStoppedByUser(&s.Status)
}

// isStoppedByUser reports whether a stopped session continues when its user resumes it: a session that was stopped for
// inactivity would otherwise restart at once.
func isStoppedByUser(status *v1alpha1.AgenticSessionStatus) bool {
	return status.StoppedReason == v1alpha1.StopUser || status.StoppedReason == ""
}

// lastRun returns the record of the last attempt of the current run; nil if none has ended.
func lastRun(status *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionAttempt {
	if len(status.Attempts) == 0 {
		return nil
	}
	last := &status.Attempts[len(status.Attempts)-1]
	if last.Run != status.Run {
		return nil
	}
	return last
}

// AttemptNumber returns the number of the last attempt of the current run; 0 if there was none.
func AttemptNumber(status *v1alpha1.AgenticSessionStatus) int32 {
	if status.Attempt.Run == status.Run {
		return status.Attempt.Attempt
	}
	if last := lastRun(status); last != nil {
		return last.Attempt
	}
	return 0
}
