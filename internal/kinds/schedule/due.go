package schedule

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxDueTimes is the number of due times in one decision. If there are more, the oldest are decided first, and another
	// decision follows.
	maxDueTimes = 10_000
	// maxCatchUp is the number of times that run with catchUp: All.
	maxCatchUp = 100
	// onTime is how late a time may start with catchUp: None, unless the deadline is shorter. A change of the leader takes
	// less.
	onTime = time.Minute
)

// dueTimes are the due times of a timetable that are not decided.
type dueTimes struct {
	// times in order, at most maxDueTimes.
	times []time.Time
	// next is the time after times; zero without one.
	next time.Time
	// nextStart is when next starts, jitter included.
	nextStart time.Time
	// hasMore is true if next is due too.
	hasMore bool
}

// findDueTimes returns the times after the last decided time.
func (e *evaluation) findDueTimes() dueTimes {
	var due dueTimes
	next := e.timetable.Next(e.decidedUntil())
	for !next.IsZero() {
		start := e.startTime(next)
		isDue := !start.After(e.Now)
		if !isDue || len(due.times) == maxDueTimes {
			due.next, due.nextStart, due.hasMore = next, start, isDue
			return due
		}
		due.times = append(due.times, next)
		next = e.timetable.Next(next)
	}
	return due
}

// decidedUntil returns the time until which all times are decided.
func (e *evaluation) decidedUntil() time.Time {
	until := e.status.Timetable.Since.Time
	if last := e.status.LastScheduleTime; last != nil && last.After(until) {
		until = last.Time
	}
	return until
}

func (e *evaluation) startTime(due time.Time) time.Time {
	return e.timetable.StartTime(e.Schedule.UID, due, Jitter(e.spec))
}

// Jitter returns the upper bound of the delay of each run.
func Jitter(spec *v1alpha1.ScheduleSpec) time.Duration {
	return ptr.Deref(spec.Jitter, v1alpha1.Duration{}).Duration.Duration
}

// maxLateness returns how late a time may start. Found is false if there is no limit.
func maxLateness(spec *v1alpha1.ScheduleSpec) (limit time.Duration, found bool) {
	if spec.StartingDeadlineSeconds != nil {
		limit, found = time.Duration(*spec.StartingDeadlineSeconds)*time.Second, true
	}
	if spec.CatchUp == v1alpha1.CatchUpNone && (!found || limit > onTime) {
		limit, found = onTime, true
	}
	return limit, found
}

func (e *evaluation) isTooLate(due time.Time) bool {
	limit, found := maxLateness(e.spec)
	return found && e.Now.Sub(e.startTime(due)) > limit
}

// missTooLate counts the times that may no longer start, and returns the others.
func (e *evaluation) missTooLate(times []time.Time) []time.Time {
	late := 0
	for late < len(times) && e.isTooLate(times[late]) {
		late++
	}
	e.miss(times[:late], v1alpha1.MissedTooLate)
	return times[late:]
}

func (e *evaluation) miss(times []time.Time, reason string) {
	if len(times) == 0 {
		return
	}
	last := times[len(times)-1]
	e.countMissed(last, int64(len(times)), reason, "")
	e.status.LastScheduleTime = apiTime(last) // all times until then are decided
}

// countMissed counts times as missed that are recorded as decided elsewhere.
func (e *evaluation) countMissed(last time.Time, count int64, reason, message string) {
	e.status.Missed += count
	e.status.LastMissed = &v1alpha1.MissedTime{Time: *apiTime(last), Reason: reason, Message: message}
	if e.decision.Missed == nil {
		e.decision.Missed = map[string]int64{}
	}
	e.decision.Missed[reason] += count
}

// resolveExpected decides about the next time if its run exists or can be created at once. It returns true if the remaining
// times can be decided as usual: the run does not exist, or its time is pending.
func (e *evaluation) resolveExpected() bool {
	next := e.status.NextScheduleTime
	name := RunName(e.Schedule, next.Time)
	isDue := !e.startTime(next.Time).After(e.Now)
	answer, isAnswered := e.Answers[name]
	switch {
	case e.findRun(name) != nil, e.Refusal != nil:
		e.expectedIsPending(name)
	case isDue && e.isOnlyStart():
		e.decision.CreateRun = &v1alpha1.ScheduledRun{ScheduledTime: next, Name: name} // if the run exists, creating it shows that
		return false
	case !isDue && !e.isReplaced(): // not due, unless the clock was set back
	case !isAnswered:
		e.decision.Question = name
		return false
	case answer != nil:
		e.Runs = append(e.Runs, *answer)
		e.expectedIsPending(name)
	}
	return true
}

func (e *evaluation) expectedIsPending(name string) {
	next := e.status.NextScheduleTime
	e.status.Pending = &v1alpha1.ScheduledRun{ScheduledTime: next, Name: name}
	e.status.LastScheduleTime = next
}

// isOnlyStart reports whether only the next time is due, and nothing prevents its start.
func (e *evaluation) isOnlyStart() bool {
	if e.spec.Suspend || e.status.Suspended || e.isReplaced() || e.NotReady != nil {
		return false
	}
	due := e.findDueTimes()
	isOnlyDue := len(due.times) == 1 && due.times[0].Equal(e.status.NextScheduleTime.Time)
	return e.mayStartBeside(e.activeRuns()) && isOnlyDue && !e.isTooLate(due.times[0])
}
