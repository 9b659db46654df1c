package session

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// What the operator did, or saw, that an event is about.
const (
	actionRun  = "Run"
	actionStop = "Stop"
)

// eventsBetween are what changed between two statuses, the second of which is stored.
func eventsBetween(before, after *v1alpha1.AgenticSessionStatus) []Event {
	var all []Event
	tell := func(kind, reason, action, format string, values ...any) {
		all = append(all, Event{kind, reason, action, fmt.Sprintf(format, values...)})
	}
	if becameReason(before, after, v1alpha1.ReasonForeignObject) {
		tell(corev1.EventTypeWarning, v1alpha1.EventForeignObject, actionRun, "%s",
			meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionDependenciesReady).Message)
	}
	if after.JobUID != "" && before.JobUID != after.JobUID {
		tell(corev1.EventTypeNormal, v1alpha1.EventJobCreated, actionRun, "Job %s", after.Job)
	}
	if after.Phase == v1alpha1.SessionRunning && before.Phase != v1alpha1.SessionRunning {
		tell(corev1.EventTypeNormal, v1alpha1.EventRunning, actionRun, "attempt %d at run %d", after.Attempt, after.Run)
	}
	if after.StopTime != nil && before.StopTime == nil {
		if after.StoppedReason == v1alpha1.StopInactivity {
			tell(corev1.EventTypeNormal, v1alpha1.EventInactivityTimeout, actionStop, "the runner has shown no activity since %s", formatLastActivity(after))
		}
		tell(corev1.EventTypeNormal, v1alpha1.EventStopping, actionStop, "%s", after.StoppedReason)
	}
	if after.Phase == v1alpha1.SessionStopped && before.Phase != v1alpha1.SessionStopped {
		tell(corev1.EventTypeNormal, v1alpha1.EventStopped, actionStop, "%s", after.StoppedReason)
	}
	if run := addedRun(before, after); run != nil {
		tellRun(tell, run)
	}
	return all
}

func formatLastActivity(status *v1alpha1.AgenticSessionStatus) string {
	if status.LastActivityTime == nil {
		return "it started"
	}
	return status.LastActivityTime.UTC().Format("2006-01-02T15:04:05Z")
}

// becameReason reports whether the dependencies newly are not ready for that reason.
func becameReason(before, after *v1alpha1.AgenticSessionStatus, reason string) bool {
	is := func(status *v1alpha1.AgenticSessionStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDependenciesReady)
		return c != nil && c.Reason == reason
	}
	return is(after) && !is(before)
}

// addedRun is the record that was added; nil if none was. No pass adds two.
func addedRun(before, after *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionRun {
	if len(after.Runs) == 0 {
		return nil
	}
	last := &after.Runs[len(after.Runs)-1]
	if len(before.Runs) > 0 {
		was := &before.Runs[len(before.Runs)-1]
		if was.Run == last.Run && was.Attempt == last.Attempt && was.Outcome == last.Outcome && was.Job == last.Job {
			return nil
		}
	}
	return last
}

func tellRun(tell func(kind, reason, action, format string, values ...any), run *v1alpha1.SessionRun) {
	switch run.Outcome {
	case v1alpha1.RunCompleted:
		tell(corev1.EventTypeNormal, v1alpha1.EventCompleted, actionRun, "attempt %d at run %d", run.Attempt, run.Run)
	case v1alpha1.RunRetried:
		tell(corev1.EventTypeWarning, v1alpha1.EventRetrying, actionRun, "attempt %d at run %d: %s", run.Attempt, run.Run, formatReason(run.Reason, run.Message))
	case v1alpha1.RunFailed:
		reason := v1alpha1.EventFailed
		if run.Reason == v1alpha1.ReasonDeadlineExceeded || run.Reason == v1alpha1.ReasonPodRejected {
			reason = run.Reason
		}
		tell(corev1.EventTypeWarning, reason, actionRun, "attempt %d at run %d: %s", run.Attempt, run.Run, formatReason(run.Reason, run.Message))
	case v1alpha1.RunStopped:
	}
}
