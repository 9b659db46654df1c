package schedule

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxMissedMessage is the length of status.lastMissed.message in bytes.
	maxMissedMessage = 1024
	// maxClockDifference is how far the clocks of the operator and the API server may differ.
	maxClockDifference = 5 * time.Minute
)

// report is what users see of a decision.
type report struct {
	status v1alpha1.ScheduleStatus
	events []decision.Event
	// finished is the number of previously active runs that have ended, by result.
	finished     map[string]int64
	requeueAfter time.Duration
}

func newReport(f *facts, t *times, p plan) report {
	r := report{status: *t.status.DeepCopy()}
	status := &r.status
	status.ObservedGeneration = f.Schedule.Generation
	active := f.activeRuns()
	status.Active, status.ActiveRuns = int32(min(len(active), math.MaxInt32)), nil
	for _, run := range active[:min(len(active), maxActiveRuns)] {
		entry := v1alpha1.ScheduledRun{Name: run.Name, RerunID: run.RerunID}
		if !run.ScheduledTime.IsZero() {
			entry.ScheduledTime = apiTime(run.ScheduledTime)
		}
		status.ActiveRuns = append(status.ActiveRuns, entry)
	}
	var lastRun *decision.State
	for _, run := range f.Runs { // in their order, so that the newest finished run has the last word
		if !run.IsFinished {
			continue
		}
		state := decision.False(v1alpha1.ReasonRunFailed, decision.FormatReason(run.Name, run.Failure))
		if run.HasSucceeded {
			state = decision.True(v1alpha1.ReasonRunSucceeded, run.Name)
			if last := status.LastSuccessfulTime; last == nil || run.CompletionTime.After(last.Time) {
				status.LastSuccessfulTime = apiTime(run.CompletionTime)
			}
		}
		lastRun = &state
	}
	if lastRun != nil {
		decision.SetState(&status.Conditions, f.Schedule.Generation, f.now, v1alpha1.ConditionLastRunSucceeded, *lastRun)
	}
	decision.Set(&status.Conditions, f.Schedule.Generation, f.now, summary(f, t))
	r.events, r.finished = newEvents(f, t, p, status)
	timer := t.timer
	if !f.spec.Suspend {
		timer.RequeueWithin(maxRequeue)
	}
	r.requeueAfter = timer.RequeueAfter
	return r
}

// summary returns Ready, Reconciling and Stalled: the first state of docs/conditions.md that applies.
func summary(f *facts, t *times) decision.Summary {
	ready := decision.Summary{Ready: metav1.ConditionTrue, Progress: decision.Settled}
	stuck := decision.Summary{Ready: metav1.ConditionFalse, Progress: decision.Stuck}
	status, request := &t.status, ""
	if r := status.Rerun; r != nil && r.Left > 0 {
		request = fmt.Sprintf("; %d times of request %s have not started", r.Left, r.ID)
	}
	switch {
	case f.wanted == nil:
		return with(stuck, f.invalid.Reason, f.invalid.Message)
	case f.KindDisabled:
		kind := KindOf(f.spec)
		if f.spec.Message != nil {
			kind = "Queue"
		}
		return with(stuck, v1alpha1.ReasonKindDisabled, "the operator runs without the controller of "+kind)
	case decidedUntil(status).Sub(f.Now) > maxClockDifference:
		return with(stuck, v1alpha1.ReasonClockSkewed, fmt.Sprintf(
			"all times until %s are decided, and it is %s: the clock of the operator was wrong", formatTime(decidedUntil(status)), formatTime(f.Now)))
	case t.problem != nil:
		return decision.Summary{Ready: metav1.ConditionFalse, Progress: decision.InProgress, Reason: t.problem.Reason, Message: t.problem.Message}
	case t.hasFailedTooOften() && !f.spec.Suspend:
		return with(stuck, v1alpha1.ReasonTooManyFailures, fmt.Sprintf(
			"%d runs in a row failed: no time starts until a run succeeds, such as a triggered one, or the Schedule is suspended and resumed", status.Failures)+request)
	case isLastMissed(f, t, v1alpha1.MissedRefused, v1alpha1.ReasonRunRefused):
		missed := status.LastMissed
		return with(stuck, v1alpha1.ReasonRunRefused, fmt.Sprintf("the run of %s was refused: %s", formatTime(missed.Time.Time), missed.Message))
	case isLastMissed(f, t, v1alpha1.MissedWhenFailed, v1alpha1.ReasonWhenFailed):
		missed := status.LastMissed
		return with(stuck, v1alpha1.ReasonWhenFailed, fmt.Sprintf("whether the time %s starts is unknown: %s", formatTime(missed.Time.Time), missed.Message))
	case f.spec.Suspend:
		return with(ready, v1alpha1.ReasonSuspended, "spec.suspend is true"+request)
	case t.waitsForRun:
		return with(ready, v1alpha1.ReasonWaitingForRun, fmt.Sprintf("a time is due, and waits for run %s to end", f.activeRuns()[0].Name)+request)
	case status.NextScheduleTime == nil:
		return with(ready, v1alpha1.ReasonScheduled, "no time within 40 years"+request)
	default:
		return with(ready, v1alpha1.ReasonScheduled, "next at "+formatTime(status.NextScheduleTime.Time)+request)
	}
}

// isLastMissed reports whether the last time, or the last time of a request, was missed for a reason with the spec of this generation.
// The condition Ready has the other reason then.
func isLastMissed(f *facts, t *times, reason, conditionReason string) bool {
	missed, request := t.status.LastMissed, t.status.Rerun
	if missed == nil || missed.Reason != reason {
		return false
	}
	isLast := missed.Time.Equal(t.status.LastScheduleTime) || request != nil && missed.Time.Equal(request.LastTime)
	stored := decision.FindReason(f.stored.Conditions, v1alpha1.ConditionReady, conditionReason)
	return isLast && (t.missed[reason] > 0 || stored != nil && stored.ObservedGeneration == f.Schedule.Generation)
}

func with(summary decision.Summary, reason, message string) decision.Summary {
	summary.Reason, summary.Message = reason, message
	return summary
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// isReady reports whether the condition Ready is not False.
func isReady(status *v1alpha1.ScheduleStatus) bool {
	return !meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionReady)
}
