package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	actionStart   = "Start"
	actionObserve = "Observe"
	actionReplace = "Replace"
)

// lateEvent is how late a run is before its event mentions the delay.
const lateEvent = 10 * time.Second

// events returns the events about the changes that the decision records.
func (e *evaluation) events(before *v1alpha1.ScheduleStatus) []decision.Event {
	var events []decision.Event
	for _, reason := range slices.Sorted(maps.Keys(e.decision.Missed)) {
		events = append(events, e.missedEvent(reason))
	}
	if started := e.decision.Started; started != nil {
		message := fmt.Sprintf("Created %s %s", KindOf(e.spec), started.Name)
		if e.spec.Message != nil {
			message = fmt.Sprintf("Sent message %s to Queue %s", started.Name, e.spec.Message.QueueRef.Name)
		}
		if late := started.Created.Sub(started.Due); late > lateEvent {
			message += fmt.Sprintf(", %s late", late.Truncate(time.Second))
		}
		events = append(events, decision.RoutineEvent(v1alpha1.EventRunCreated, actionStart, message))
	}
	for i := range before.ActiveRuns {
		run := e.findRun(before.ActiveRuns[i].Name)
		if run == nil || !run.IsFinished {
			continue
		}
		if e.decision.Finished == nil {
			e.decision.Finished = map[string]int64{}
		}
		if run.HasSucceeded {
			e.decision.Finished["succeeded"]++
			events = append(events, decision.RoutineEvent(v1alpha1.EventRunSucceeded, actionObserve, fmt.Sprintf("Run %s succeeded", run.Name)))
		} else {
			e.decision.Finished["failed"]++
			events = append(events, decision.WarningEvent(v1alpha1.EventRunFailed, actionObserve, fmt.Sprintf("Run %s failed: %s", run.Name, run.Failure)))
		}
	}
	for _, run := range e.decision.DeleteRuns {
		if !run.IsFinished {
			events = append(events, decision.NormalEvent(v1alpha1.EventRunReplaced, actionReplace, fmt.Sprintf("Deleting run %s, because another time is due", run.Name)))
		}
	}
	if isReady(before) && !isReady(&e.status) {
		message := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionReady).Message
		events = append(events, decision.WarningEvent(v1alpha1.EventRunBlocked, actionStart, message))
	}
	return events
}

func (e *evaluation) missedEvent(reason string) decision.Event {
	count, text := e.decision.Missed[reason], missedTexts[reason]
	message := fmt.Sprintf("Missed %d times until %s: %s", count, formatTime(e.status.LastMissed.Time.Time), text)
	if count == 1 {
		message = fmt.Sprintf("Missed the time %s: %s", formatTime(e.status.LastMissed.Time.Time), text)
	}
	if reason == v1alpha1.MissedRefused {
		message += ": " + e.status.LastMissed.Message
	}
	if reason == v1alpha1.MissedSuspended {
		return decision.NormalEvent(v1alpha1.EventTimesMissed, actionStart, message)
	}
	return decision.WarningEvent(v1alpha1.EventTimesMissed, actionStart, message)
}

var missedTexts = map[string]string{
	v1alpha1.MissedSuspended:       "the Schedule was suspended",
	v1alpha1.MissedTooLate:         "too late to start",
	v1alpha1.MissedSuperseded:      "a later time was due too",
	v1alpha1.MissedScheduleChanged: "the schedule was changed while another run was active",
	v1alpha1.MissedRefused:         "the run was refused",
	v1alpha1.MissedOutcomeUnknown:  "the broker did not confirm the message, which may be in its queue",
}
