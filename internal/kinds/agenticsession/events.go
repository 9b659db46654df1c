package agenticsession

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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
	if isNameTaken(after) && !isNameTaken(before) {
		add(corev1.EventTypeWarning, v1alpha1.EventNameTaken, actionRun, "%s",
			meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionBlocked).Message)
	}
	addJobEvents(before, after, add)
	if after.Attempt.StopTime != nil && before.Attempt.StopTime == nil {
		if after.StoppedReason == v1alpha1.StopInactivity {
			since := "it started"
			if after.Attempt.LastActivityTime != nil {
				since = after.Attempt.LastActivityTime.UTC().Format(time.RFC3339)
			}
			add(corev1.EventTypeNormal, v1alpha1.EventInactivityTimeout, actionStop, "The runner has shown no activity since %s", since)
		}
		add(corev1.EventTypeNormal, v1alpha1.EventStopping, actionStop, "Stopping, requested by: %s", after.StoppedReason)
	}
	if after.Phase == v1alpha1.SessionStopped && before.Phase != v1alpha1.SessionStopped {
		add(corev1.EventTypeNormal, v1alpha1.EventStopped, actionStop, "Stopped, requested by: %s", after.StoppedReason)
	}
	if run := addedRun(before, after); run != nil {
		if event, found := eventOfRun(run); found {
			events = append(events, event)
		}
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

func addJobEvents(before, after *v1alpha1.AgenticSessionStatus, add func(kind, reason, action, format string, values ...any)) {
	if after.Attempt.JobUID != "" && before.Attempt.JobUID != after.Attempt.JobUID {
		add(corev1.EventTypeNormal, v1alpha1.EventJobCreated, actionRun, "Created Job %s", after.Attempt.JobName)
	}
	if after.Phase == v1alpha1.SessionRunning && before.Phase != v1alpha1.SessionRunning {
		add(corev1.EventTypeNormal, v1alpha1.EventRunning, actionRun, "Started attempt %d of run %d", after.Attempt.Attempt, after.Run)
	}
	if after.Phase == v1alpha1.SessionPending && before.Phase == v1alpha1.SessionRunning && after.Attempt.JobName != "" && after.Attempt.JobName == before.Attempt.JobName {
		add(corev1.EventTypeNormal, v1alpha1.EventJobSuspended, actionRun, "Job %s was suspended; its runner starts again when the Job is resumed", after.Attempt.JobName)
	}
}

func isNameTaken(status *v1alpha1.AgenticSessionStatus) bool {
	return decision.FindReason(status.Conditions, v1alpha1.ConditionBlocked, v1alpha1.ReasonNameTaken) != nil
}

// addedRun returns the added record, or nil. A decision adds at most one record.
func addedRun(before, after *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionAttempt {
	if len(after.Attempts) == 0 {
		return nil
	}
	last := &after.Attempts[len(after.Attempts)-1]
	if len(before.Attempts) > 0 {
		old := &before.Attempts[len(before.Attempts)-1]
		if old.Run == last.Run && old.Attempt == last.Attempt && old.Outcome == last.Outcome && old.JobName == last.JobName {
			return nil
		}
	}
	return last
}

// eventOfRun returns the event for the end of an attempt. A stopped attempt has none, because EventStopped reports the
// new phase.
func eventOfRun(run *v1alpha1.SessionAttempt) (event decision.Event, found bool) {
	event = decision.Event{
		Type: corev1.EventTypeWarning, Reason: v1alpha1.EventFailed, Action: actionRun,
		Message: fmt.Sprintf("Attempt %d of run %d failed: %s", run.Attempt, run.Run, decision.FormatReason(run.Reason, run.Message)),
	}
	switch run.Outcome {
	case v1alpha1.RunStopped:
		return decision.Event{}, false
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
	return event, true
}
