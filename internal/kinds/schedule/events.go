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

// newEvents returns the events about the changes that a decision records, and the number of runs that have ended, by result.
func newEvents(f *facts, t *times, p plan, after *v1alpha1.ScheduleStatus) (events []decision.Event, finished map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(t.missed)) {
		events = append(events, missedEvent(reason, t.missed[reason], t.status.LastMissed))
	}
	if t.started != nil {
		message := fmt.Sprintf("Created %s %s", KindOf(f.spec), t.started.Name)
		if f.spec.Message != nil {
			message = fmt.Sprintf("Sent message %s to Queue %s", t.started.Name, f.spec.Message.QueueRef.Name)
		}
		if late := t.started.Created.Sub(t.started.Due); late > lateEvent {
			message += fmt.Sprintf(", %s late", late.Truncate(time.Second))
		}
		events = append(events, decision.RoutineEvent(v1alpha1.EventRunCreated, actionStart, message))
	}
	finished = map[string]int64{}
	for i := range f.stored.ActiveRuns {
		run := f.findRun(f.stored.ActiveRuns[i].Name)
		if run == nil || !run.IsFinished {
			continue
		}
		if run.HasSucceeded {
			finished["succeeded"]++
			events = append(events, decision.RoutineEvent(v1alpha1.EventRunSucceeded, actionObserve, fmt.Sprintf("Run %s succeeded", run.Name)))
		} else {
			finished["failed"]++
			events = append(events, decision.WarningEvent(v1alpha1.EventRunFailed, actionObserve, fmt.Sprintf("Run %s failed: %s", run.Name, run.Failure)))
		}
	}
	for _, run := range p.deleteRuns {
		if !run.IsFinished {
			events = append(events, decision.NormalEvent(v1alpha1.EventRunReplaced, actionReplace, fmt.Sprintf("Deleting run %s, because another time is due", run.Name)))
		}
	}
	if isReady(f.stored) && !isReady(after) {
		message := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady).Message
		events = append(events, decision.WarningEvent(v1alpha1.EventRunBlocked, actionStart, message))
	}
	return events, finished
}

func missedEvent(reason string, count int64, last *v1alpha1.MissedTime) decision.Event {
	message := fmt.Sprintf("Missed %d times until %s: %s", count, formatTime(last.Time.Time), missedTexts[reason])
	if count == 1 {
		message = fmt.Sprintf("Missed the time %s: %s", formatTime(last.Time.Time), missedTexts[reason])
	}
	switch reason {
	case v1alpha1.MissedRefused, v1alpha1.MissedWhenFailed:
		if last.Reason == reason {
			message += ": " + last.Message
		}
		return decision.WarningEvent(v1alpha1.EventTimesMissed, actionStart, message)
	case v1alpha1.MissedWhenFalse:
		return decision.RoutineEvent(v1alpha1.EventTimesMissed, actionStart, message)
	case v1alpha1.MissedSuspended, v1alpha1.MissedCanceled:
		return decision.NormalEvent(v1alpha1.EventTimesMissed, actionStart, message)
	default:
		return decision.WarningEvent(v1alpha1.EventTimesMissed, actionStart, message)
	}
}

var missedTexts = map[string]string{
	v1alpha1.MissedSuspended:       "the Schedule was suspended",
	v1alpha1.MissedTooLate:         "too late to start",
	v1alpha1.MissedSuperseded:      "a later time was due too",
	v1alpha1.MissedScheduleChanged: "the schedule was changed before the time could start",
	v1alpha1.MissedCanceled:        "the request was withdrawn or replaced",
	v1alpha1.MissedRefused:         "the run was refused",
	v1alpha1.MissedWhenFalse:       "spec.when is false",
	v1alpha1.MissedWhenFailed:      "spec.when cannot be evaluated",
	v1alpha1.MissedOutcomeUnknown:  "the broker did not confirm the message, which may be in its queue",
}
