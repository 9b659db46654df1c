package sequentialjob

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	actionRun         = "Run"
	actionObserveSpec = "ObserveSpec"
	actionSuspend     = "Suspend"
	actionArchive     = "Archive"
)

// statusEvents returns events for the changes between two statuses. JobCreatedEvent reports the creation of a Job.
func statusEvents(before, after *v1alpha1.SequentialJobStatus) []decision.Event {
	events := specEvents(before, after)
	for i := range after.Steps {
		events = append(events, stepEvents(findStep(before.Steps, after.Steps[i].Name), &after.Steps[i])...)
	}
	events = append(events, archiveEvents(before.Archive, after.Archive)...)
	return append(events, runEvents(before, after)...)
}

// HasArchiveEnded reports whether an archive of logs ended between two statuses.
func HasArchiveEnded(before, after *v1alpha1.SequenceArchiveStatus) bool {
	return after != nil && after.CompletionTime != nil && (before == nil || before.Run != after.Run || before.CompletionTime == nil)
}

func archiveEvents(before, after *v1alpha1.SequenceArchiveStatus) []decision.Event {
	if !HasArchiveEnded(before, after) {
		return nil
	}
	if after.Error != "" {
		message := fmt.Sprintf("The logs of run %d are not archived: %s", after.Run, decision.FormatReason(after.Reason, after.Error))
		return []decision.Event{decision.WarningEvent(v1alpha1.EventArchiveFailed, actionArchive, message)}
	}
	message := decision.FormatReason(fmt.Sprintf("The logs of run %d are archived in %s", after.Run, after.Location), after.Message)
	return []decision.Event{decision.RoutineEvent(v1alpha1.EventLogsArchived, actionArchive, message)}
}

func specEvents(before, after *v1alpha1.SequentialJobStatus) []decision.Event {
	var events []decision.Event
	if before.Run > 0 && after.ObservedGeneration != before.ObservedGeneration && !IsFinished(before) {
		message := fmt.Sprintf("Steps that have not started use the spec of generation %d", after.ObservedGeneration)
		events = append(events, decision.WarningEvent(v1alpha1.EventSpecChanged, actionObserveSpec, message))
	}
	if isNewlyFalse(before, after, v1alpha1.ConditionSpecAccepted) {
		events = append(events, decision.WarningEvent(v1alpha1.EventSpecRejected, actionObserveSpec, conditionMessage(after, v1alpha1.ConditionSpecAccepted)))
	}
	if after.Run > before.Run && before.Run > 0 {
		events = append(events, decision.NormalEvent(v1alpha1.EventRerunStarted, actionRun, fmt.Sprintf("Run %d started", after.Run)))
	}
	return events
}

// stepEvents returns events for a step, which may have passed several phases since the status was last stored.
func stepEvents(before, after *v1alpha1.StepStatus) []decision.Event {
	if before == nil {
		before = &v1alpha1.StepStatus{Phase: v1alpha1.StepPending}
	}
	var events []decision.Event
	sameAttempt := before.Run == after.Run && before.Attempt == after.Attempt
	if !sameAttempt && after.Attempt > 1 && (after.Reason == v1alpha1.ReasonJobLost || after.Reason == v1alpha1.ReasonOutcomeUnknown) {
		lost := "Job"
		if after.Reason == v1alpha1.ReasonOutcomeUnknown {
			lost = "Pod"
		}
		message := fmt.Sprintf("The %s of step %s was deleted before its outcome was recorded; attempt %d starts", lost, after.Name, after.Attempt)
		events = append(events, decision.WarningEvent(v1alpha1.EventJobLost, actionRun, message))
	}
	if sameAttempt && before.Phase == after.Phase {
		return events
	}
	switch after.Phase {
	case v1alpha1.StepSucceeded:
		events = append(events, routineEvent(v1alpha1.EventJobCompleted, fmt.Sprintf("Job %s of step %s completed", after.JobName, after.Name)))
	case v1alpha1.StepRetrying:
		events = append(events, decision.WarningEvent(v1alpha1.EventJobFailed, actionRun, retryMessage(after)))
	case v1alpha1.StepFailed:
		message := fmt.Sprintf("Step %s failed: %s", after.Name, decision.FormatReason(after.Reason, after.Message))
		events = append(events, decision.WarningEvent(v1alpha1.EventJobFailed, actionRun, message))
	}
	return events
}

var conditionEvents = []struct {
	condition, reason, action string
	newEvent                  func(reason, action, message string) decision.Event
}{
	{v1alpha1.ConditionSuspended, v1alpha1.EventSuspended, actionSuspend, decision.NormalEvent},
	{v1alpha1.ConditionAvailable, v1alpha1.EventCompleted, actionRun, decision.NormalEvent},
	{v1alpha1.ConditionFailed, v1alpha1.EventFailed, actionRun, decision.WarningEvent},
}

func runEvents(before, after *v1alpha1.SequentialJobStatus) []decision.Event {
	var events []decision.Event
	if meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionSuspended) && isNewlyFalse(before, after, v1alpha1.ConditionSuspended) {
		events = append(events, decision.NormalEvent(v1alpha1.EventResumed, actionSuspend, "The run continues"))
	}
	if reason := blockedEvent(after); reason != "" && reason != blockedEvent(before) {
		events = append(events, decision.WarningEvent(reason, actionRun, conditionMessage(after, v1alpha1.ConditionBlocked)))
	}
	for _, row := range conditionEvents {
		if meta.IsStatusConditionTrue(after.Conditions, row.condition) && !meta.IsStatusConditionTrue(before.Conditions, row.condition) {
			event := row.newEvent(row.reason, row.action, conditionMessage(after, row.condition))
			event.Routine = row.condition == v1alpha1.ConditionAvailable
			events = append(events, event)
		}
	}
	return events
}

// blockedEvent returns the reason of the event about a blocked run; empty if the run is not blocked.
func blockedEvent(status *v1alpha1.SequentialJobStatus) string {
	switch blockedReason(status) {
	case "":
		return ""
	case v1alpha1.ReasonNameTaken:
		return v1alpha1.EventNameConflict
	case v1alpha1.ReasonImageNotAllowed:
		return v1alpha1.EventPolicyViolated
	case v1alpha1.ReasonQuotaExceeded:
		return v1alpha1.EventResourcesUnavailable
	default:
		return v1alpha1.EventBlocked
	}
}

// JobCreatedEvent reports that a step's Job was created.
func JobCreatedEvent(job *batchv1.Job) decision.Event {
	return routineEvent(v1alpha1.EventJobStarted, fmt.Sprintf("Created Job %s for step %s", job.Name, job.Labels[v1alpha1.LabelStep]))
}

func isNewlyFalse(before, after *v1alpha1.SequentialJobStatus, condition string) bool {
	return meta.IsStatusConditionFalse(after.Conditions, condition) && !meta.IsStatusConditionFalse(before.Conditions, condition)
}

func conditionMessage(status *v1alpha1.SequentialJobStatus, condition string) string {
	return meta.FindStatusCondition(status.Conditions, condition).Message
}

func routineEvent(reason, message string) decision.Event {
	return decision.RoutineEvent(reason, actionRun, message)
}
