package schedule

import (
	"fmt"
	"math"
	"slices"
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

func (e *evaluation) summarizeRuns() {
	active := e.activeRuns()
	e.status.Active, e.status.ActiveRuns = int32(min(len(active), math.MaxInt32)), nil
	for _, run := range active[:min(len(active), maxActiveRuns)] {
		entry := v1alpha1.ScheduledRun{Name: run.Name}
		if !run.ScheduledTime.IsZero() {
			entry.ScheduledTime = apiTime(run.ScheduledTime)
		}
		e.status.ActiveRuns = append(e.status.ActiveRuns, entry)
	}
	for _, run := range e.Runs {
		last := e.status.LastSuccessfulTime
		if run.HasSucceeded && (last == nil || run.CompletionTime.After(last.Time)) {
			e.status.LastSuccessfulTime = apiTime(run.CompletionTime)
		}
	}
	for _, run := range slices.Backward(e.Runs) {
		if !run.IsFinished {
			continue
		}
		state := decision.True(v1alpha1.ReasonRunSucceeded, run.Name)
		if !run.HasSucceeded {
			state = decision.False(v1alpha1.ReasonRunFailed, decision.FormatReason(run.Name, run.Failure))
		}
		decision.SetState(&e.status.Conditions, e.Schedule.Generation, e.now, v1alpha1.ConditionLastRunSucceeded, state)
		return
	}
}

// summary returns Ready, Reconciling and Stalled: the first state of docs/conditions.md that applies.
func (e *evaluation) summary() decision.Summary {
	ready := decision.Summary{Ready: metav1.ConditionTrue, Progress: decision.Settled}
	stuck := decision.Summary{Ready: metav1.ConditionFalse, Progress: decision.Stuck}
	missed := e.status.LastMissed
	switch {
	case e.timetable == nil:
		return with(stuck, e.problem.Reason, e.problem.Message)
	case e.KindDisabled:
		kind := KindOf(e.spec)
		if e.spec.Message != nil {
			kind = "Queue"
		}
		return with(stuck, v1alpha1.ReasonKindDisabled, "the operator runs without the controller of "+kind)
	case e.decidedUntil().Sub(e.Now) > maxClockDifference:
		return with(stuck, v1alpha1.ReasonClockSkewed, fmt.Sprintf(
			"all times until %s are decided, and it is %s: the clock of the operator was wrong", formatTime(e.decidedUntil()), formatTime(e.Now)))
	case e.problem != nil:
		return decision.Summary{Ready: metav1.ConditionFalse, Progress: decision.InProgress, Reason: e.problem.Reason, Message: e.problem.Message}
	case missed != nil && missed.Reason == v1alpha1.MissedRefused && missed.Time.Equal(e.status.LastScheduleTime) && e.isRefusedSpec():
		return with(stuck, v1alpha1.ReasonRunRefused, fmt.Sprintf("the run of %s was refused: %s", formatTime(missed.Time.Time), missed.Message))
	case e.spec.Suspend:
		return with(ready, v1alpha1.ReasonSuspended, "spec.suspend is true")
	case e.isBlockedByRun:
		return with(ready, v1alpha1.ReasonWaitingForRun, fmt.Sprintf("a time is due, and waits for run %s to end", e.activeRuns()[0].Name))
	case e.status.NextScheduleTime == nil:
		return with(ready, v1alpha1.ReasonScheduled, "no time within 40 years")
	default:
		return with(ready, v1alpha1.ReasonScheduled, "next at "+formatTime(e.status.NextScheduleTime.Time))
	}
}

// isRefusedSpec reports whether the last refused run had the spec of this generation.
func (e *evaluation) isRefusedSpec() bool {
	stored := decision.FindReason(e.status.Conditions, v1alpha1.ConditionReady, v1alpha1.ReasonRunRefused)
	return e.decision.Missed[v1alpha1.MissedRefused] > 0 || stored != nil && stored.ObservedGeneration == e.Schedule.Generation
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
