package sequence

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Event is something worth telling the people who watch a SequentialJob.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Action  string
	Message string
	// Routine says that the event tells of a step's ordinary course, which the status
	// tells too: under load it may be left out.
	Routine bool
}

// What the operator did, or saw, that an event is about.
const (
	actionRun      = "Run"
	actionReadSpec = "ReadSpec"
	actionHold     = "Hold"
)

// Events are what changed between two statuses, the second of which is stored. That a
// Job was made is told at once (StartedEvent): the status may follow later.
func Events(before, after *v1alpha1.SequentialJobStatus) []Event {
	var events []Event
	events = append(events, specEvents(before, after)...)
	for i := range after.Steps {
		events = append(events, stepEvents(findStep(before.Steps, after.Steps[i].Name), &after.Steps[i])...)
	}
	return append(events, runEvents(before, after)...)
}

func specEvents(before, after *v1alpha1.SequentialJobStatus) []Event {
	var events []Event
	if before.Run > 0 && after.ObservedGeneration != before.ObservedGeneration && before.CompletionTime == nil {
		events = append(events, normal(v1alpha1.EventSpecChanged, actionReadSpec, fmt.Sprintf("generation %d: steps that have not started follow it", after.ObservedGeneration)))
	}
	if became(before, after, v1alpha1.ConditionSpecAccepted, false) {
		events = append(events, warning(v1alpha1.EventSpecRejected, actionReadSpec, conditionMessage(after, v1alpha1.ConditionSpecAccepted)))
	}
	if after.Run > before.Run && before.Run > 0 {
		events = append(events, normal(v1alpha1.EventRerunStarted, actionRun, fmt.Sprintf("run %d", after.Run)))
	}
	return events
}

// stepEvents tell of one step. A step may have gone through several phases since the
// status was last stored: each is told of once.
func stepEvents(before, after *v1alpha1.StepStatus) []Event {
	if before == nil {
		before = &v1alpha1.StepStatus{Phase: v1alpha1.StepPending}
	}
	var events []Event
	same := before.Run == after.Run && before.Attempt == after.Attempt
	if !same && after.Attempt > 1 && after.Reason == v1alpha1.ReasonJobLost {
		events = append(events, warning(v1alpha1.EventJobLost, actionRun, fmt.Sprintf("step %s: its Job vanished before its outcome was recorded; it is made again", after.Name)))
	}
	if same && before.Phase == after.Phase {
		return events
	}
	switch after.Phase {
	case v1alpha1.StepSucceeded:
		events = append(events, routine(v1alpha1.EventJobCompleted, fmt.Sprintf("step %s: Job %s", after.Name, after.JobName)))
	case v1alpha1.StepFailed:
		events = append(events, warning(v1alpha1.EventJobFailed, actionRun, fmt.Sprintf("step %s: %s", after.Name, joinReason(after.Reason, after.Message))))
	}
	return events
}

func runEvents(before, after *v1alpha1.SequentialJobStatus) []Event {
	var events []Event
	if became(before, after, v1alpha1.ConditionNameConflict, true) {
		events = append(events, warning(v1alpha1.EventNameConflict, actionRun, conditionMessage(after, v1alpha1.ConditionNameConflict)))
	}
	if became(before, after, v1alpha1.ConditionResourcesUnavailable, true) {
		events = append(events, warning(v1alpha1.EventResourcesUnavailable, actionRun, conditionMessage(after, v1alpha1.ConditionResourcesUnavailable)))
	}
	if became(before, after, v1alpha1.ConditionSuspended, true) {
		events = append(events, normal(v1alpha1.EventSuspended, actionHold, conditionMessage(after, v1alpha1.ConditionSuspended)))
	}
	if meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionSuspended) && became(before, after, v1alpha1.ConditionSuspended, false) {
		events = append(events, normal(v1alpha1.EventResumed, actionHold, "the run goes on"))
	}
	if became(before, after, v1alpha1.ConditionAvailable, true) {
		events = append(events, normal(v1alpha1.EventCompleted, actionRun, conditionMessage(after, v1alpha1.ConditionAvailable)))
	}
	if became(before, after, v1alpha1.ConditionFailed, true) {
		events = append(events, warning(v1alpha1.EventFailed, actionRun, conditionMessage(after, v1alpha1.ConditionFailed)))
	}
	return events
}

// StartedEvent tells that a step's Job was made.
func StartedEvent(job *batchv1.Job) Event {
	return routine(v1alpha1.EventJobStarted, fmt.Sprintf("step %s: Job %s", job.Labels[v1alpha1.LabelStep], job.Name))
}

// TerminatedEvent tells that a deleted SequentialJob's running step has ended.
func TerminatedEvent() Event {
	return normal(v1alpha1.EventTerminated, actionRun, "deleted; nothing of it runs any more")
}

// became reports whether a condition newly has the status.
func became(before, after *v1alpha1.SequentialJobStatus, condition string, status bool) bool {
	is := meta.IsStatusConditionTrue
	if !status {
		is = meta.IsStatusConditionFalse
	}
	return is(after.Conditions, condition) && !is(before.Conditions, condition)
}

func conditionMessage(status *v1alpha1.SequentialJobStatus, condition string) string {
	return meta.FindStatusCondition(status.Conditions, condition).Message
}

func normal(reason, action, message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Action: action, Message: message}
}

func routine(reason, message string) Event {
	event := normal(reason, actionRun, message)
	event.Routine = true
	return event
}

func warning(reason, action, message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Message: message}
}
