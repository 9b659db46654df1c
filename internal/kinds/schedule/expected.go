package schedule

import "github.com/yardmaster/yardmaster/api/v1alpha1"

// The run of the time that the status names as the next one is created before the status records it: the name of the run and
// the recorded next time make sure that it runs once, and each due time costs a write less. So until the next time is decided,
// its run may exist. A job may not: the queue does not recognize it forever.

// mayHaveStarted reports whether the run of the next time may exist although nothing about it is recorded.
func (e *evaluation) mayHaveStarted() bool {
	next := e.status.NextScheduleTime
	return e.spec.Job == nil && next != nil && next.After(e.decidedUntil())
}

// resolveExpected decides about the next time as far as its run exists, or can be created at once. It reports whether
// times can be decided as usual: then its run does not exist, or is pending.
func (e *evaluation) resolveExpected() bool {
	next := e.status.NextScheduleTime
	name := RunName(e.Schedule, next.Time)
	isDue := !e.startTime(next.Time).After(e.Now)
	answer, isAnswered := e.Answers.Runs[name]
	switch {
	case e.findRun(name) != nil, e.Refusal != nil:
		e.expectedIsPending(name)
	case isDue && e.isOnlyStart():
		e.decision.CreateRun = &v1alpha1.PendingRun{ScheduledTime: *next, Name: name} // if it exists, creating it finds that
		return false
	case !isDue && !e.isReplaced(): // it was not due, unless the clock was set back
	case !isAnswered:
		e.decision.Question = &Question{RunNamed: name}
		return false
	case answer != nil:
		e.Runs = append(e.Runs, *answer)
		e.expectedIsPending(name)
	}
	return true
}

// expectedIsPending makes the next time the pending one.
func (e *evaluation) expectedIsPending(name string) {
	next := e.status.NextScheduleTime
	e.status.Pending = &v1alpha1.PendingRun{ScheduledTime: *next, Name: name}
	e.decide(next.Time)
}

// isOnlyStart reports whether the next time is the only due one, and nothing prevents its start.
func (e *evaluation) isOnlyStart() bool {
	if e.spec.Suspend || e.status.Suspended || e.isReplaced() || e.NotReady != nil {
		return false
	}
	due := e.findDueTimes()
	return e.mayStartBeside(e.activeRuns()) && len(due.times) == 1 && due.times[0].Equal(e.status.NextScheduleTime.Time) && !e.isTooLate(due.times[0])
}
