package agenticsession

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

// maxConditionMessageBytes keeps the status small.
const maxConditionMessageBytes = 4096

// report returns the decision with the phase, the conditions, the events, and when to decide again. A finished session keeps the
// conditions of its last Job, and what it waited for.
func report(f *facts, o *outcome, n *next) Decision {
	if n.Question != nil {
		return Decision{Status: *f.Session.Status.DeepCopy(), Question: n.Question}
	}
	d := n.Decision
	d.Status = *n.Status.DeepCopy()
	status := &d.Status
	status.Phase = phaseOf(status)
	f.setCondition(status, v1alpha1.ConditionNetworkRestricted, networkRestricted(&f.Observation, n.open.job, o.pod,
		meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNetworkRestricted)))
	isFinished := status.Phase == v1alpha1.SessionCompleted || status.Phase == v1alpha1.SessionFailed
	if !isFinished || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRunnerStarted) == nil {
		f.setCondition(status, v1alpha1.ConditionRunnerStarted, runnerStarted(status, o.pod, n.obstacle))
		f.setCondition(status, v1alpha1.ConditionBlocked, blocked(status, o.pod, n.obstacle, f.Now))
	}
	if reports := slices.Concat(o.reports, n.reports); len(reports) > 0 {
		f.setCondition(status, v1alpha1.ConditionRunnerReporting, runnerReporting(reports))
	} else if o.job != nil && status.StartTime != nil { // nothing that its session asks for
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRunnerReporting)
	}
	if status.Attempt.RunnerStartTime != nil && len(pushedRepos(f.spec, false)) > 0 {
		f.setCondition(status, v1alpha1.ConditionPushed, decision.State{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotPushedYet})
	}
	problem := phaseReason(status, o.pod, n.obstacle)
	problem.Message = decision.TruncateMessage(problem.Message, maxConditionMessageBytes)
	succeeded := decision.State{Status: metav1.ConditionUnknown, Reason: problem.Reason, Message: problem.Message}
	if isFinished {
		succeeded.Status = decision.StatusOf(status.Phase == v1alpha1.SessionCompleted)
	}
	f.setCondition(status, v1alpha1.ConditionSucceeded, succeeded)
	if f.spec.Interactive { // whether its runner accepts connections at present
		serving := decision.False(v1alpha1.ReasonRunnerNotReady, "")
		if c := runnerStatus(o.pod); status.Phase == v1alpha1.SessionRunning && c != nil && c.Ready {
			serving = decision.True(v1alpha1.ReasonRunnerReady, "")
		}
		f.setCondition(status, v1alpha1.ConditionServing, serving)
	}
	decision.Set(&status.Conditions, f.Session.Generation, f.now, summaryOf(status.Phase, problem))
	d.Events = eventsBetween(&f.Session.Status, status)
	d.RequeueAfter = decision.Earliest(o.timer.RequeueAfter, n.timer.RequeueAfter)
	return d
}

// runnerReporting returns the worst of the states of a runner's reports, with the messages of all that are as bad: a malformed report
// is worse than a missing one.
func runnerReporting(reports []decision.State) decision.State {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		var worst decision.State
		for _, report := range reports {
			switch {
			case report.Status != status:
			case worst.Status == "":
				worst = report
			default:
				worst.Message += "; " + report.Message
			}
		}
		if worst.Status != "" {
			return worst
		}
	}
	return reports[0]
}

// phaseOf derives the phase from the open attempt's Job, or from how the last attempt ended.
func phaseOf(status *v1alpha1.AgenticSessionStatus) v1alpha1.SessionPhase {
	if attempt := &status.Attempt; attempt.JobName != "" {
		switch {
		case attempt.StopTime != nil:
			return v1alpha1.SessionStopping
		case status.QueuedSince != nil: // its Job is suspended
			return v1alpha1.SessionPending
		case attempt.RunnerStartTime != nil:
			return v1alpha1.SessionRunning
		case attempt.JobUID != "":
			return v1alpha1.SessionCreating
		}
		return v1alpha1.SessionPending
	}
	switch last := lastRun(status); {
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

// blockingReasons are reasons for which a session may wait without a time limit, but not for its turn.
var blockingReasons = []string{v1alpha1.ReasonWorkspaceInUse, v1alpha1.ReasonWorkspaceLost, v1alpha1.ReasonWorkspaceNotFound, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonUnprotected}

// blocked reports what keeps a session from starting, from continuing, or from stopping.
func blocked(status *v1alpha1.AgenticSessionStatus, pod *corev1.Pod, o *obstacle, now time.Time) decision.State {
	switch {
	case status.Attempt.StopTime != nil && !now.Before(stuckTime(status)):
		name := "its Pod"
		if pod != nil {
			name = "Pod " + pod.Name
		}
		return decision.True(v1alpha1.ReasonGracePeriodExceeded, fmt.Sprintf(
			"%s was terminated at %s and still exists; check whether its node is available", name, status.Attempt.StopTime.UTC().Format(time.RFC3339)))
	case o != nil && (o.timeLimited || slices.Contains(blockingReasons, o.Reason)):
		return decision.True(o.Reason, o.Message)
	}
	return decision.False(v1alpha1.ReasonNotBlocked, "")
}

// checkReasons are the reasons that the network check of a Pod causes.
var checkReasons = []string{
	v1alpha1.ReasonNetworkCheckPending, v1alpha1.ReasonNetworkPolicyEnforced, v1alpha1.ReasonNetworkNotEnforced, v1alpha1.ReasonNetworkEnforcementUnknown,
}

// networkRestricted reports whether the NetworkPolicies of the namespace allow the session's Pods no more than the
// SessionRunner does, and whether the network enforces them, according to the check in the session's Pod. job is that of the open
// attempt; nil without an open attempt. After the Pod was deleted, the session keeps the last result of the check.
func networkRestricted(o *Observation, job *batchv1.Job, pod *corev1.Pod, previous *metav1.Condition) decision.State {
	s, policies, name := o.Session, o.NetworkPolicies, NetworkPolicyName(o.Session.Name)
	own := findNetworkPolicy(policies, name)
	if own == nil || !metav1.IsControlledBy(own, s) {
		return decision.False(v1alpha1.ReasonNetworkPolicyNotFound, "NetworkPolicy "+name+" does not exist")
	}
	if defaultDeny := NewDefaultDenyPolicy(s.Namespace); !IsNetworkPolicyCurrent(findNetworkPolicy(policies, defaultDeny.Name), defaultDeny) {
		return decision.False(v1alpha1.ReasonNetworkPolicyNotFound,
			"NetworkPolicy "+defaultDeny.Name+", which denies all connections of sessions in the namespace, does not exist or was changed")
	}
	wanted := own
	if o.Runner != nil {
		wanted = newSessionNetworkPolicy(s, o.Runner, job, &o.Network, &o.NetworkCheck)
		if !IsNetworkPolicyCurrent(own, wanted) {
			return decision.False(v1alpha1.ReasonNetworkPolicyDiffers, "NetworkPolicy "+name+" differs from what SessionRunner "+o.Runner.Name+" allows")
		}
	}
	if widening := findWideningPolicy(policies, podLabels(s, o.Runner), wanted); widening != nil {
		return decision.False(v1alpha1.ReasonNetworkWidened, wideningMessage(widening, s.Spec.Runner))
	}
	check := findContainer(pod, checkContainer)
	switch {
	case pod == nil && previous != nil && slices.Contains(checkReasons, previous.Reason):
		return unchanged
	case check == nil:
		return decision.True(v1alpha1.ReasonNetworkPolicyApplied, "The session does not check whether NetworkPolicies are enforced")
	case check.State.Terminated == nil:
		return decision.State{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNetworkCheckPending, Message: "The network check of the Pod has not ended"}
	case networkcheck.ParseResult(check.State.Terminated.Message) == networkcheck.Enforced:
		return decision.True(v1alpha1.ReasonNetworkPolicyEnforced, "A connection that is not allowed failed, and one that is allowed succeeded")
	}
	problem := enforcementProblem(check.State.Terminated)
	if problem.Reason == v1alpha1.ReasonNetworkNotEnforced {
		return decision.False(problem.Reason, problem.Message)
	}
	return decision.State{Status: metav1.ConditionUnknown, Reason: problem.Reason, Message: problem.Message}
}

func wideningMessage(policy *networkingv1.NetworkPolicy, runner string) string {
	return "NetworkPolicy " + policy.Name + " selects the session's Pods and allows connections that SessionRunner " + runner +
		" does not; change its podSelector so that it excludes Pods with the label " + LabelSessionUID
}

// runnerStarted reports how far the start of the runner has come.
func runnerStarted(status *v1alpha1.AgenticSessionStatus, pod *corev1.Pod, o *obstacle) decision.State {
	switch problem := containerStartProblem(pod); {
	case status.Attempt.RunnerStartTime != nil:
		return decision.True(v1alpha1.ReasonRunnerStarted, "")
	case problem != nil:
		return decision.False(problem.Reason, problem.Message)
	case status.Attempt.JobUID == "" && o != nil:
		return decision.False(o.Reason, o.Message)
	case status.Attempt.JobUID == "":
		return decision.False(v1alpha1.ReasonJobNotCreated, "")
	case status.QueuedSince != nil || pod == nil: // the Job is suspended, or its Pod is not in the cache
		return decision.False(v1alpha1.ReasonPodNotCreated, "")
	case pod.Spec.NodeName == "":
		message := ""
		if c := findPodCondition(pod, corev1.PodScheduled, corev1.ConditionFalse); c != nil {
			message = decision.FormatReason(c.Reason, c.Message)
		}
		return decision.False(v1alpha1.ReasonUnscheduled, message)
	}
	return decision.False(v1alpha1.ReasonRunnerNotStarted, "")
}

// summaryOf returns Ready, Reconciling and Stalled, as docs/conditions.md lists them.
func summaryOf(phase v1alpha1.SessionPhase, problem decision.Problem) decision.Summary {
	s := decision.Summary{Ready: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message, Progress: decision.InProgress}
	switch phase {
	case v1alpha1.SessionRunning, v1alpha1.SessionCompleted:
		s.Ready, s.Progress = metav1.ConditionTrue, decision.Settled
	case v1alpha1.SessionStopped:
		s.Progress = decision.Settled
	case v1alpha1.SessionFailed:
		s.Progress = decision.Stuck
	case v1alpha1.SessionPending: // a missing object may still be created; other obstacles need a change
		if slices.Contains([]string{v1alpha1.ReasonInvalid, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonImageNotAllowed, v1alpha1.ReasonNameTaken}, problem.Reason) {
			s.Progress = decision.Stuck
		}
	case v1alpha1.SessionCreating, v1alpha1.SessionStopping:
	}
	return s
}

func phaseReason(status *v1alpha1.AgenticSessionStatus, pod *corev1.Pod, o *obstacle) decision.Problem {
	switch status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		last := lastRun(status)
		return decision.Problem{Reason: last.Reason, Message: last.Message}
	case v1alpha1.SessionRunning:
		return decision.Problem{Reason: v1alpha1.ReasonRunning}
	case v1alpha1.SessionStopping:
		return decision.Problem{Reason: v1alpha1.ReasonStopping, Message: string(status.StoppedReason)}
	case v1alpha1.SessionStopped:
		return decision.Problem{Reason: v1alpha1.ReasonStopped, Message: string(status.StoppedReason)}
	case v1alpha1.SessionCreating:
		if problem := containerStartProblem(pod); problem != nil {
			return *problem
		}
		if o != nil {
			return o.Problem
		}
		return decision.Problem{Reason: v1alpha1.ReasonCreating}
	case v1alpha1.SessionPending:
	}
	if o != nil {
		return o.Problem
	}
	return decision.Problem{Reason: v1alpha1.ReasonWaiting}
}

// Actions of events.
const (
	actionRun  = "Run"
	actionStop = "Stop"
)

func eventsBetween(before, after *v1alpha1.AgenticSessionStatus) []decision.Event {
	var events []decision.Event
	add := func(kind, reason, action, format string, values ...any) {
		events = append(events, decision.Event{Type: kind, Reason: reason, Action: action, Message: fmt.Sprintf(format, values...)})
	}
	nameTaken := decision.FindReason(after.Conditions, v1alpha1.ConditionBlocked, v1alpha1.ReasonNameTaken)
	if nameTaken != nil && decision.FindReason(before.Conditions, v1alpha1.ConditionBlocked, v1alpha1.ReasonNameTaken) == nil {
		add(corev1.EventTypeWarning, v1alpha1.EventNameTaken, actionRun, "%s", nameTaken.Message)
	}
	if after.Attempt.JobUID != "" && before.Attempt.JobUID != after.Attempt.JobUID {
		add(corev1.EventTypeNormal, v1alpha1.EventJobCreated, actionRun, "Created Job %s", after.Attempt.JobName)
	}
	if after.Phase == v1alpha1.SessionRunning && before.Phase != v1alpha1.SessionRunning {
		add(corev1.EventTypeNormal, v1alpha1.EventRunning, actionRun, "Started attempt %d of run %d", after.Attempt.Attempt, after.Run)
	}
	if after.Phase == v1alpha1.SessionPending && before.Phase == v1alpha1.SessionRunning && after.Attempt.JobName != "" && after.Attempt.JobName == before.Attempt.JobName {
		add(corev1.EventTypeNormal, v1alpha1.EventJobSuspended, actionRun, "Job %s was suspended; its runner starts again when the Job is resumed", after.Attempt.JobName)
	}
	if after.Attempt.StopTime != nil && before.Attempt.StopTime == nil {
		if after.StoppedReason == v1alpha1.StopInactivity {
			since := after.Attempt.LastActivityTime.UTC().Format(time.RFC3339) // only a runner with a known activity is idle
			add(corev1.EventTypeNormal, v1alpha1.EventInactivityTimeout, actionStop, "The runner has shown no activity since %s", since)
		}
		add(corev1.EventTypeNormal, v1alpha1.EventStopping, actionStop, "Stopping, requested by: %s", after.StoppedReason)
	}
	if after.Phase == v1alpha1.SessionStopped && before.Phase != v1alpha1.SessionStopped {
		add(corev1.EventTypeNormal, v1alpha1.EventStopped, actionStop, "Stopped, requested by: %s", after.StoppedReason)
	}
	if event := endEvent(before, after); event != nil {
		events = append(events, *event)
	}
	if c := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionPushed); isWorkMissing(after) {
		old := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionPushed)
		if old == nil || old.Reason != c.Reason || old.Message != c.Message {
			add(corev1.EventTypeWarning, v1alpha1.EventPushFailed, actionRun, "Not all work was pushed: %s", c.Message)
		}
	}
	if before.Workspace.UID != "" && after.Workspace.UID == "" { // the session accepts an empty workspace
		add(corev1.EventTypeWarning, v1alpha1.EventWorkspaceLost, actionRun,
			"PersistentVolumeClaim %s was lost: the next attempt starts with an empty workspace", after.Workspace.ClaimRef.Name)
	}
	return events
}

// endEvent returns the event for the attempt whose record the decision adds, at most one; nil if it adds none. A stopped attempt has no
// event, because EventStopped reports the new phase.
func endEvent(before, after *v1alpha1.AgenticSessionStatus) *decision.Event {
	if len(after.Attempts) == 0 {
		return nil
	}
	run := &after.Attempts[len(after.Attempts)-1]
	if len(before.Attempts) > 0 {
		old := &before.Attempts[len(before.Attempts)-1]
		if old.Run == run.Run && old.Attempt == run.Attempt && old.Outcome == run.Outcome && old.JobName == run.JobName {
			return nil
		}
	}
	event := &decision.Event{
		Type: corev1.EventTypeWarning, Reason: v1alpha1.EventFailed, Action: actionRun,
		Message: fmt.Sprintf("Attempt %d of run %d failed: %s", run.Attempt, run.Run, decision.FormatReason(run.Reason, run.Message)),
	}
	switch run.Outcome {
	case v1alpha1.RunStopped:
		return nil
	case v1alpha1.RunCompleted:
		event.Type, event.Reason = corev1.EventTypeNormal, v1alpha1.EventCompleted
		event.Message = fmt.Sprintf("Attempt %d of run %d completed", run.Attempt, run.Run)
	case v1alpha1.RunRetried:
		event.Reason = v1alpha1.EventRetrying
	case v1alpha1.RunFailed:
		if slices.Contains([]string{v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonBudgetExceeded, v1alpha1.ReasonPodRejected}, run.Reason) {
			event.Reason = run.Reason
		}
	}
	return event
}
