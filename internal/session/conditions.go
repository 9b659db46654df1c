package session

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/condition"
	"github.com/yardmaster/yardmaster/internal/core"
)

// maxConditionMessageLength keeps the status small.
const maxConditionMessageLength = 4096

// conditionState is the value of a condition.
type conditionState struct {
	status          metav1.ConditionStatus
	reason, message string
}

// conditionRule determines one condition. If found is false the condition stays as it is.
type conditionRule struct {
	conditionType string
	evaluate      func(*evaluation) (state conditionState, found bool)
}

// The rules of the conditions, in the order in which the status lists them.
var (
	dependencyRules = []conditionRule{
		{v1alpha1.ConditionDependenciesReady, dependenciesReady},
		{v1alpha1.ConditionNetworkRestricted, networkRestricted},
	}
	attemptRules = []conditionRule{
		{v1alpha1.ConditionJobCreated, jobCreated},
		{v1alpha1.ConditionPodScheduled, podScheduled},
		{v1alpha1.ConditionRunnerStarted, runnerStarted},
	}
	outcomeRules = []conditionRule{
		{v1alpha1.ConditionStopStuck, stopStuck},
		{v1alpha1.ConditionCompleted, completed},
	}
)

// setConditions sets all conditions, given the phase. A finished session keeps the attempt
// conditions of its last Job.
func (e *evaluation) setConditions() {
	e.applyRules(dependencyRules)
	isFinished := e.status.Phase == v1alpha1.SessionCompleted || e.status.Phase == v1alpha1.SessionFailed
	if !isFinished || e.findCondition(v1alpha1.ConditionJobCreated) == nil {
		e.applyRules(attemptRules)
	}
	e.applyRules(outcomeRules)
	condition.Set(&e.status.Conditions, e.observation.Session.Generation, e.now, e.summary())
}

func (e *evaluation) applyRules(rules []conditionRule) {
	for _, rule := range rules {
		if state, found := rule.evaluate(e); found {
			e.setCondition(rule.conditionType, state)
		}
	}
}

func (e *evaluation) setCondition(conditionType string, state conditionState) {
	meta.SetStatusCondition(&e.status.Conditions, metav1.Condition{
		Type: conditionType, Status: state.status, Reason: state.reason, Message: truncateConditionMessage(state.message),
		ObservedGeneration: e.observation.Session.Generation, LastTransitionTime: e.now,
	})
}

func truncateConditionMessage(message string) string {
	runes := []rune(message)
	return string(runes[:min(len(runes), maxConditionMessageLength)])
}

func (e *evaluation) findCondition(conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(e.status.Conditions, conditionType)
}

// phaseOf derives the phase from the open attempt's Job, or from how the last attempt ended.
func phaseOf(status *v1alpha1.AgenticSessionStatus) v1alpha1.SessionPhase {
	switch {
	case status.Job != "" && status.StopTime != nil:
		return v1alpha1.SessionStopping
	case status.Job != "" && status.RunnerStartTime != nil:
		return v1alpha1.SessionRunning
	case status.Job != "" && status.JobUID != "":
		return v1alpha1.SessionCreating
	case status.Job != "":
		return v1alpha1.SessionPending
	}
	last := lastRun(status)
	switch {
	case last != nil && last.Outcome == v1alpha1.RunCompleted:
		return v1alpha1.SessionCompleted
	case last != nil && last.Outcome == v1alpha1.RunFailed:
		return v1alpha1.SessionFailed
	case status.StoppedReason != "":
		return v1alpha1.SessionStopped
	default:
		return v1alpha1.SessionPending
	}
}

// dependenciesReady keeps the condition of a session that has ended.
func dependenciesReady(e *evaluation) (conditionState, bool) {
	switch o := e.obstacle; {
	case o != nil && (o.timeLimited || o.Reason == v1alpha1.ReasonWorkspaceInUse):
		return conditionState{metav1.ConditionFalse, o.Reason, o.Message}, true
	case e.status.Job != "":
		return conditionState{metav1.ConditionTrue, v1alpha1.ReasonDependenciesReady, ""}, true
	case e.findCondition(v1alpha1.ConditionDependenciesReady) == nil:
		return conditionState{metav1.ConditionUnknown, v1alpha1.ReasonUnknown, ""}, true
	}
	return conditionState{}, false
}

func networkRestricted(e *evaluation) (conditionState, bool) {
	session, policy, runner := e.observation.Session, e.observation.NetworkPolicy, e.observation.Runner
	switch {
	case policy == nil || !metav1.IsControlledBy(policy, session):
		message := "NetworkPolicy " + NetworkPolicyName(session.Name) + " does not exist"
		return conditionState{metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyNotFound, message}, true
	case runner != nil && !isNetworkPolicyApplied(policy, buildNetworkPolicy(session, runner)):
		message := "NetworkPolicy " + policy.Name + " differs from what SessionRunner " + runner.Name + " allows"
		return conditionState{metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyDiffers, message}, true
	}
	return conditionState{metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied, ""}, true
}

// jobCreated keeps the report of an exceeded quota while the Job is tried again.
func jobCreated(e *evaluation) (conditionState, bool) {
	previous := e.findCondition(v1alpha1.ConditionJobCreated)
	switch {
	case e.status.JobUID != "":
		return conditionState{metav1.ConditionTrue, v1alpha1.ReasonJobCreated, "Job " + e.status.Job}, true
	case e.obstacle != nil:
		return conditionState{metav1.ConditionFalse, e.obstacle.Reason, e.obstacle.Message}, true
	case e.decision.CreateJob != nil && previous != nil && previous.Reason == v1alpha1.ReasonQuotaExceeded:
		return conditionState{}, false
	}
	return conditionState{metav1.ConditionFalse, v1alpha1.ReasonJobNotCreated, ""}, true
}

// podScheduled keeps the condition of a Pod that the cache does not contain.
func podScheduled(e *evaluation) (conditionState, bool) {
	switch {
	case e.job == nil || e.pod == nil:
		isKept := e.status.Job != "" && e.findCondition(v1alpha1.ConditionPodScheduled) != nil
		return conditionState{metav1.ConditionFalse, v1alpha1.ReasonPodNotCreated, ""}, !isKept
	case e.pod.Spec.NodeName != "":
		return conditionState{metav1.ConditionTrue, v1alpha1.ReasonScheduled, ""}, true
	}
	message := ""
	if c := findPodCondition(e.pod, corev1.PodScheduled, corev1.ConditionFalse); c != nil {
		message = core.FormatReason(c.Reason, c.Message)
	}
	return conditionState{metav1.ConditionFalse, v1alpha1.ReasonUnscheduled, message}, true
}

func runnerStarted(e *evaluation) (conditionState, bool) {
	if e.status.RunnerStartTime != nil {
		return conditionState{metav1.ConditionTrue, v1alpha1.ReasonRunnerStarted, ""}, true
	}
	if problem := containerStartProblem(e.pod); problem != nil {
		return conditionState{metav1.ConditionFalse, problem.Reason, problem.Message}, true
	}
	return conditionState{metav1.ConditionFalse, v1alpha1.ReasonRunnerNotStarted, ""}, true
}

// stopStuck sets the condition only once it has been True.
func stopStuck(e *evaluation) (conditionState, bool) {
	if e.status.StopTime != nil && !e.observation.Now.Before(e.stuckTime()) {
		name := "its Pod"
		if e.pod != nil {
			name = "Pod " + e.pod.Name
		}
		return conditionState{metav1.ConditionTrue, v1alpha1.ReasonGracePeriodExceeded, fmt.Sprintf(
			"%s was terminated at %s and still exists; check whether its node is available",
			name, e.status.StopTime.UTC().Format("2006-01-02T15:04:05Z"),
		)}, true
	}
	wasStuck := e.findCondition(v1alpha1.ConditionStopStuck) != nil
	return conditionState{metav1.ConditionFalse, v1alpha1.ReasonPodTerminated, ""}, wasStuck
}

func completed(e *evaluation) (conditionState, bool) {
	status, problem := metav1.ConditionFalse, e.phaseReason()
	if e.status.Phase == v1alpha1.SessionCompleted {
		status = metav1.ConditionTrue
	}
	return conditionState{status, problem.Reason, problem.Message}, true
}

// summary returns Ready, Reconciling and Stalled, as docs/conditions.md lists them.
func (e *evaluation) summary() condition.Summary {
	problem := e.phaseReason()
	s := condition.Summary{
		Ready: metav1.ConditionFalse, Reason: problem.Reason, Message: truncateConditionMessage(problem.Message), Progress: condition.InProgress,
	}
	switch e.status.Phase {
	case v1alpha1.SessionRunning, v1alpha1.SessionCompleted:
		s.Ready, s.Progress = metav1.ConditionTrue, condition.Settled
	case v1alpha1.SessionStopped:
		s.Progress = condition.Settled
	case v1alpha1.SessionFailed:
		s.Progress = condition.Stuck
	case v1alpha1.SessionPending: // a missing object may still be created; other obstacles need a change
		if slices.Contains([]string{v1alpha1.ReasonInvalid, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonNameTaken}, problem.Reason) {
			s.Progress = condition.Stuck
		}
	case v1alpha1.SessionCreating, v1alpha1.SessionStopping:
	}
	return s
}

// phaseReason returns why the session is in its phase.
func (e *evaluation) phaseReason() core.Problem {
	switch e.status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		last := lastRun(&e.status)
		return core.Problem{Reason: last.Reason, Message: last.Message}
	case v1alpha1.SessionRunning:
		return core.Problem{Reason: v1alpha1.ReasonRunning}
	case v1alpha1.SessionStopping:
		return core.Problem{Reason: v1alpha1.ReasonStopping, Message: string(e.status.StoppedReason)}
	case v1alpha1.SessionStopped:
		return core.Problem{Reason: v1alpha1.ReasonStopped, Message: string(e.status.StoppedReason)}
	case v1alpha1.SessionCreating:
		if problem := containerStartProblem(e.pod); problem != nil {
			return *problem
		}
		return core.Problem{Reason: v1alpha1.ReasonCreating}
	case v1alpha1.SessionPending:
	}
	if e.obstacle != nil {
		return e.obstacle.Problem
	}
	return core.Problem{Reason: v1alpha1.ReasonWaiting}
}
