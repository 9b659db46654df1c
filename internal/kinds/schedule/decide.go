package schedule

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxRequeue is the longest wait until the next decision: timers do not notice that the clock was set.
	maxRequeue = time.Minute
	// minRefusedRetry and maxRefusedRetry bound the wait before a refused run is tried again. The wait is as long as the run is
	// late.
	minRefusedRetry = time.Second
	maxRefusedRetry = time.Minute
	// maxActiveRuns is the number of active runs that the status lists.
	maxActiveRuns = 50
)

// Decide decides what a Schedule does next.
func Decide(observation Observation) Decision {
	e := &evaluation{
		Observation: observation,
		spec:        &observation.Schedule.Spec,
		status:      *observation.Schedule.Status.DeepCopy(),
		now:         metav1.NewTime(observation.Now.Truncate(time.Second)), // the precision of the API
		timer:       decision.Timer{Now: observation.Now},
	}
	if !e.Schedule.DeletionTimestamp.IsZero() {
		return e.decision // the garbage collector deletes the runs
	}
	e.decideRuns()
	e.decision.Status, e.decision.RequeueAfter = e.status, e.timer.RequeueAfter
	if e.decision.Question == "" {
		stored := &e.Schedule.Status
		e.decision.StatusChanged = !equality.Semantic.DeepEqual(stored, &e.status)
		e.decision.Events = e.events(stored)
	}
	return e.decision
}

// evaluation is the working state of one call of Decide.
type evaluation struct {
	Observation
	spec     *v1alpha1.ScheduleSpec
	status   v1alpha1.ScheduleStatus
	now      metav1.Time
	timer    decision.Timer
	decision Decision
	// timetable has the due times, and wanted is the timetable of the spec. They differ until a change of the spec applies.
	timetable, wanted *Timetable
	// problem keeps times from being started; nil without a problem.
	problem *decision.Problem
	// isBlockedByRun is true if a due time waits for an active run to end.
	isBlockedByRun bool
}

func (e *evaluation) decideRuns() {
	e.Runs = slices.Clone(e.Runs)
	slices.SortFunc(e.Runs, func(a, b Run) int {
		return cmp.Or(a.orderTime().Compare(b.orderTime()), cmp.Compare(a.Name, b.Name))
	})
	if e.loadTimetable() && !e.KindDisabled { // otherwise the times remain due
		e.decideTimes()
	}
	if e.decision.Question != "" {
		return
	}
	e.deleteOldRuns()
	e.status.ObservedGeneration = e.Schedule.Generation
	e.summarizeRuns()
	decision.Set(&e.status.Conditions, e.Schedule.Generation, e.now, e.summary())
	if !e.spec.Suspend {
		e.timer.RequeueWithin(maxRequeue)
	}
}

// findRun returns nil if no run of this name was observed.
func (e *evaluation) findRun(name string) *Run {
	i := slices.IndexFunc(e.Runs, func(run Run) bool { return run.Name == name })
	if i < 0 {
		return nil
	}
	return &e.Runs[i]
}

// loadTimetable sets the timetable that applies to the due times, and reports whether it is valid.
func (e *evaluation) loadTimetable() bool {
	var err error
	if e.wanted, err = NewTimetable(e.spec.Cron); err != nil {
		e.problem = &decision.Problem{Reason: v1alpha1.ReasonScheduleInvalid, Message: "spec." + err.Error()}
		return false
	}
	stored := e.status.Timetable
	if stored == nil {
		e.applyWanted(e.Schedule.CreationTimestamp)
		return true
	}
	if stored.Cron == e.spec.Cron {
		e.timetable = e.wanted
		return true
	}
	if e.timetable, err = NewTimetable(stored.Cron); err != nil { // a time zone that no longer exists
		e.applyWanted(e.now)
	}
	return true
}

// applyWanted makes the times of the spec due from since on.
func (e *evaluation) applyWanted(since metav1.Time) {
	e.timetable = e.wanted
	e.status.Timetable = &v1alpha1.ScheduleTimetable{Cron: e.spec.Cron, Since: since}
}

// isReplaced reports whether the spec has another timetable than the due times.
func (e *evaluation) isReplaced() bool { return e.timetable != e.wanted }

// decideTimes decides about the pending time and the due times.
//
// The run of the next time in the status is created before the status records it as started: the name of the run and the
// recorded next time ensure that it runs once, and each due time costs a write less. So until the next time is decided, its run
// may exist. A message is recorded before it is sent, because its queue recognizes a repeated message only for a limited time.
func (e *evaluation) decideTimes() {
	next := e.status.NextScheduleTime
	mayHaveStarted := e.spec.Message == nil && next != nil && next.After(e.decidedUntil())
	if e.status.Pending == nil && mayHaveStarted && !e.resolveExpected() {
		return
	}
	if e.status.Pending != nil && !e.resolvePending() {
		return
	}
	e.status.NextScheduleTime = nil
	due := e.findDueTimes()
	switch {
	case e.spec.Suspend:
		e.status.Suspended = true
		return
	case e.status.Suspended: // it is resumed
		e.miss(due.times, v1alpha1.MissedSuspended)
		e.status.Suspended = due.hasMore
		e.timer.RequeueWithin(time.Millisecond)
		return
	case due.hasMore: // only the last times are not missed, because catchUp may run them
		oldest := due.times[:len(due.times)-maxCatchUp]
		e.miss(e.missTooLate(oldest), v1alpha1.MissedSuperseded)
		e.timer.RequeueWithin(time.Millisecond)
		return
	}
	startable := e.missTooLate(due.times)
	e.problem = e.NotReady
	switch {
	case len(startable) > 0 && e.NotReady != nil: // the times remain due
	case len(startable) > 0:
		e.startTimes(startable)
	case e.isReplaced(): // the timetable of the spec applies from now on
		since := e.now
		if decided := e.decidedUntil(); decided.After(since.Time) { // the clock was set back
			since = *apiTime(decided)
		}
		e.applyWanted(since)
		due = e.findDueTimes()
	}
	if !due.next.IsZero() {
		e.status.NextScheduleTime = apiTime(due.next)
		e.timer.HasReached(due.nextStart)
	}
}

// startTimes starts one of the startable times, unless an active run prevents it.
func (e *evaluation) startTimes(startable []time.Time) {
	active := e.activeRuns()
	switch {
	case e.mayStartBeside(active):
		e.startOneOf(startable)
		return
	case e.isReplaced():
		e.miss(startable, v1alpha1.MissedScheduleChanged)
		e.timer.RequeueWithin(time.Millisecond)
		return
	case e.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyReplace:
		for _, run := range active {
			if !run.IsDeleted {
				e.decision.DeleteRuns = append(e.decision.DeleteRuns, run)
			}
		}
	}
	e.isBlockedByRun = true
	if limit, found := maxLateness(e.spec); found {
		e.timer.HasReached(e.startTime(startable[0]).Add(limit + time.Millisecond))
	}
}

// mayStartBeside reports whether a run may start while other runs are active.
func (e *evaluation) mayStartBeside(active []Run) bool {
	return len(active) == 0 || e.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyAllow || e.spec.ConcurrencyPolicy == ""
}

// startOneOf records that one of the times starts, and counts the times before it as missed.
func (e *evaluation) startOneOf(startable []time.Time) {
	skipped := len(startable) - 1
	if e.spec.CatchUp == v1alpha1.CatchUpAll {
		skipped = max(len(startable)-maxCatchUp, 0)
	}
	e.miss(startable[:skipped], v1alpha1.MissedSuperseded)
	chosen := startable[skipped]
	e.status.LastScheduleTime = apiTime(chosen)
	e.status.Pending = &v1alpha1.ScheduledRun{ScheduledTime: apiTime(chosen), Name: RunName(e.Schedule, chosen)}
	if e.spec.Message != nil {
		e.startSending()
	}
	e.decision.CreateRun = e.status.Pending
}

// resolvePending decides about the time whose run is being created. It reports whether further times can be decided.
func (e *evaluation) resolvePending() bool {
	pending := e.status.Pending
	if e.spec.Message != nil {
		return e.resolveMessage(pending)
	}
	if run := e.findRun(pending.Name); run != nil {
		e.countStarted(run.CreationTime)
		return true
	}
	due := pending.ScheduledTime.Time
	refused := e.Refusal != nil
	if refused && e.Refusal.Class != decision.QuotaExceeded { // a quota may have room later
		return e.missPending(v1alpha1.MissedRefused, e.Refusal.Message)
	}
	if e.spec.Suspend || e.isTooLate(due) {
		answer, known := e.Answers[pending.Name]
		switch {
		case !known:
			e.decision.Question = pending.Name
			return false
		case answer != nil:
			e.Runs = append(e.Runs, *answer)
			e.countStarted(answer.CreationTime)
			return true
		case e.spec.Suspend:
			return e.missPending(v1alpha1.MissedSuspended, "")
		default:
			return e.missPending(v1alpha1.MissedTooLate, "")
		}
	}
	if !refused {
		e.decision.CreateRun = pending
		return false
	}
	e.problem = &decision.Problem{Reason: string(e.Refusal.Class), Message: e.Refusal.Message}
	e.retryLater(due)
	return false
}

// retryLater tries a refused time again. The wait is as long as the time is late.
func (e *evaluation) retryLater(due time.Time) {
	e.timer.RequeueWithin(min(max(e.Now.Sub(e.startTime(due)), minRefusedRetry), maxRefusedRetry))
}

// missPending counts the pending time as missed. It returns true: further times can be decided.
func (e *evaluation) missPending(reason, message string) bool {
	due := e.status.Pending.ScheduledTime.Time
	e.status.Pending = nil
	e.countMissed(due, 1, reason, decision.TruncateMessage(message, maxMissedMessage))
	return true
}

func (e *evaluation) countStarted(created time.Time) {
	due := e.status.Pending.ScheduledTime.Time
	e.decision.Started = &StartedRun{Name: e.status.Pending.Name, Due: e.startTime(due), Created: created}
	e.status.Pending = nil
	e.status.Runs++
}

// activeRuns returns the runs that have not finished, including deleted runs that still exist.
func (e *evaluation) activeRuns() []Run {
	return slices.DeleteFunc(slices.Clone(e.Runs), func(run Run) bool { return run.IsFinished })
}

// deleteOldRuns deletes the oldest finished runs beyond the limits of the history.
func (e *evaluation) deleteOldRuns() {
	succeeded, failed := ptr.Deref(e.spec.SuccessfulRunsHistoryLimit, 3), ptr.Deref(e.spec.FailedRunsHistoryLimit, 1)
	for _, run := range slices.Backward(e.Runs) {
		left := &failed
		if run.HasSucceeded {
			left = &succeeded
		}
		switch {
		case !run.IsFinished || run.IsDeleted:
		case *left > 0:
			*left--
		case run.IsArchiving: // its logs would be lost
		default:
			e.decision.DeleteRuns = append(e.decision.DeleteRuns, run)
		}
	}
}
