package schedule

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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

// times are the outcome of the times of a Schedule: which of them are decided, and the run that starts next.
type times struct {
	*facts
	// status has new values of the fields about times and requests. The others are as stored.
	status v1alpha1.ScheduleStatus
	// inEffect is the timetable by which times are due after this decision.
	inEffect *Timetable
	// question is the name of a run that must be read before the times can be decided.
	question string
	// create is the run to create or the message to send; nil without one. isFirstAttempt is true if the message was certainly not sent
	// before.
	create         *v1alpha1.ScheduledRun
	isFirstAttempt bool
	// replaced are the active runs to delete, so that another run can start.
	replaced []Run
	// started is a run that exists and is counted. missed are the times that are counted as missed, by reason.
	started *StartedRun
	missed  map[string]int64
	// problem keeps times from being started; nil without one.
	problem *decision.Problem
	// waitsForRun is true if a time waits for an active run to end.
	waitsForRun bool
	timer       decision.Timer
}

// decideTimes decides about the pending time, the due times, and the request.
//
// The run of the next time in the status is created before the status records it as started: the name of the run and the
// recorded next time ensure that it runs once, and each due time costs a write less. So until the next time is decided, its run
// may exist. A message is recorded before it is sent, because its queue recognizes a repeated message only for a limited time.
func decideTimes(f *facts) *times {
	t := &times{facts: f, status: *f.stored.DeepCopy(), inEffect: f.inEffect, problem: f.invalid, timer: decision.Timer{Now: f.Now}}
	t.status.Timetable = f.timetable.DeepCopy()
	t.countFailures()
	if pending := t.status.Pending; pending != nil && pending.RerunID != "" && t.status.Rerun == nil { // somebody changed the status
		t.status.Rerun = &v1alpha1.ScheduleRerunStatus{Rerun: v1alpha1.Rerun{ID: pending.RerunID}, Since: t.now, To: *pending.ScheduledTime, LastTime: pending.ScheduledTime}
	}
	if f.wanted == nil || f.KindDisabled { // the times remain due
		return t
	}
	next := t.status.NextScheduleTime
	mayHaveStarted := t.spec.Message == nil && next != nil && next.After(t.decidedUntil())
	if t.status.Pending == nil && mayHaveStarted && !t.resolveExpected() {
		return t
	}
	if t.status.Pending != nil && !t.resolvePending() {
		return t
	}
	t.receiveRequest()
	if !t.isBackfill() {
		t.startRequested() // before times that wait too
	}
	if t.create == nil {
		t.decideDueTimes()
		t.startRequested() // a backfill gives way to times that are due
	}
	return t
}

// decideDueTimes decides about the times of the timetable that are due.
func (t *times) decideDueTimes() {
	t.status.NextScheduleTime = nil
	due := t.findDueTimes()
	switch {
	case t.isSuspended():
		t.status.Suspended = true
		return
	case t.status.Suspended: // it is resumed
		t.miss(due.times, v1alpha1.MissedSuspended)
		t.status.Suspended = due.hasMore
		t.timer.RequeueWithin(time.Millisecond)
		return
	case due.hasMore: // only the last times are not missed, because catchUp may run them
		oldest := due.times[:len(due.times)-maxCatchUp]
		t.miss(t.missTooLate(oldest), v1alpha1.MissedSuperseded)
		t.timer.RequeueWithin(time.Millisecond)
		return
	}
	startable := t.missTooLate(due.times)
	switch {
	case len(startable) > 0 && t.NotReady != nil: // the times remain due
	case len(startable) > 0:
		t.startTimes(startable)
	case t.isReplaced(): // the timetable of the spec applies from now on
		if !due.next.IsZero() && !due.next.After(t.Now) { // it is due, and has not started because of jitter
			t.miss([]time.Time{due.next}, v1alpha1.MissedScheduleChanged)
		}
		since := t.now
		if decided := t.decidedUntil(); decided.After(since.Time) { // the clock was set back
			since = *apiTime(decided)
		}
		t.inEffect, t.status.Timetable = t.wanted, &v1alpha1.ScheduleTimetable{Cron: t.spec.Cron, Since: since}
		due = t.findDueTimes()
	}
	if t.NotReady != nil {
		t.problem = t.NotReady
	}
	if !due.next.IsZero() {
		t.status.NextScheduleTime = apiTime(due.next)
		t.timer.HasReached(due.nextStart)
	}
}

// startTimes starts one of the startable times, unless an active run prevents it, or spec.when all of them. Which times spec.when
// prevents is known when they could start: with Forbid not before the active run has ended.
func (t *times) startTimes(startable []time.Time) {
	active := t.activeRuns()
	switch waits := len(active) > 0 && t.runsAlone(); {
	case waits && t.isReplaced():
		t.miss(startable, v1alpha1.MissedScheduleChanged)
		t.timer.RequeueWithin(time.Millisecond)
	case waits && t.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyForbid:
		t.waitWith(startable, active)
	default:
		candidates := startable[max(len(startable)-maxCatchUp, 0):]
		chosen, rejections := t.choose(candidates)
		if chosen < len(candidates) && waits {
			t.waitWith(startable, active)
			return
		}
		t.miss(startable[:len(startable)-len(candidates)], v1alpha1.MissedSuperseded)
		for i, due := range candidates[:chosen] {
			t.missBecause(due, cmp.Or(rejections[i], rejection{reason: v1alpha1.MissedSuperseded}))
		}
		if chosen < len(candidates) {
			due := candidates[chosen]
			t.status.LastScheduleTime = apiTime(due)
			t.start(v1alpha1.ScheduledRun{Name: RunName(t.Schedule, due), ScheduledTime: apiTime(due)})
		}
	}
}

// choose returns the index of the time that starts, and why spec.when prevents others; without such a time, an index after the last.
func (t *times) choose(candidates []time.Time) (chosen int, rejections []rejection) {
	chosen = len(candidates)
	for i, due := range candidates {
		rejections = append(rejections, t.rejectionOf(due))
		isFirst := chosen == len(candidates)
		if rejections[i] == (rejection{}) && (isFirst || t.spec.CatchUp != v1alpha1.CatchUpAll) {
			chosen = i
		}
	}
	return chosen, rejections
}

// waitWith lets startable times wait until no run is active, or until the first of them is too late.
func (t *times) waitWith(startable []time.Time, active []Run) {
	t.waitFor(active, t.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyReplace)
	if limit, found := maxLateness(t.spec); found {
		t.timer.HasReached(t.startTime(startable[0]).Add(limit + time.Millisecond))
	}
}

// waitFor lets a time wait until no run is active. With deletes, the active runs are deleted.
func (t *times) waitFor(active []Run, deletes bool) {
	t.waitsForRun = true
	if deletes && len(t.replaced) == 0 {
		t.replaced = slices.DeleteFunc(active, func(run Run) bool { return run.IsDeleted })
	}
}

// start records that a run is being created, or that a message is being sent.
func (t *times) start(run v1alpha1.ScheduledRun) {
	t.status.Pending = &run
	if t.spec.Message != nil {
		t.startSending()
	}
	t.create = t.status.Pending
}

// resolveExpected decides about the next time if its run exists or can be created at once. It returns true if the remaining
// times can be decided as usual: the run does not exist, or its time is pending.
func (t *times) resolveExpected() bool {
	next := t.status.NextScheduleTime
	expected := v1alpha1.ScheduledRun{Name: RunName(t.Schedule, next.Time), ScheduledTime: next}
	isDue := !t.startTime(next.Time).After(t.Now)
	switch {
	case t.findRun(expected.Name) != nil, t.Refusal != nil:
		t.status.Pending, t.status.LastScheduleTime = &expected, next
	case isDue && t.isOnlyStart():
		t.create = &expected // if the run exists, creating it shows that
		return false
	case !isDue && !t.isReplaced() && (!t.hasRequest() || !t.runsAlone()): // not due, unless the clock was set back
	case !t.isMissing(expected.Name):
		t.question = expected.Name
		return false
	}
	return true
}

// isOnlyStart reports whether only the next time is due, and nothing prevents its start.
func (t *times) isOnlyStart() bool {
	if t.isSuspended() || t.status.Suspended || t.isReplaced() || t.NotReady != nil || t.hasRequest() {
		return false
	}
	due := t.findDueTimes()
	isOnlyDue := len(due.times) == 1 && due.times[0].Equal(t.status.NextScheduleTime.Time)
	mayStart := isOnlyDue && !t.isTooLate(due.times[0]) && (!t.runsAlone() || len(t.activeRuns()) == 0)
	return mayStart && t.rejectionOf(due.times[0]) == (rejection{})
}

// resolvePending decides about the time whose run is being created. It reports whether further times can be decided.
func (t *times) resolvePending() bool {
	pending := t.status.Pending
	if t.spec.Message != nil {
		return t.resolveMessage(pending)
	}
	if run := t.findRun(pending.Name); run != nil {
		t.countStarted(run.CreationTime)
		if run.IsFinished && !t.wasActive(run.Name) {
			t.countEnd(run)
		}
		return true
	}
	refused := t.Refusal != nil
	if refused && t.Refusal.Class != decision.QuotaExceeded { // a quota may have room later
		t.missPending(v1alpha1.MissedRefused, t.Refusal.Message)
		return true
	}
	if obstacle := t.obstacleOf(pending); obstacle != "" {
		if !t.isMissing(pending.Name) {
			t.question = pending.Name
			return false
		}
		t.missPending(obstacle, "")
		return true
	}
	if !refused {
		t.create = pending
		return false
	}
	t.problem = &decision.Problem{Reason: string(t.Refusal.Class), Message: t.Refusal.Message}
	t.retryLater(pending)
	return false
}

// obstacleOf returns the reason for which a pending time that has not started is missed; empty without one.
func (t *times) obstacleOf(pending *v1alpha1.ScheduledRun) string {
	switch {
	case pending.RerunID != "":
		return t.obstacleOfRequest(pending.RerunID, pending.ScheduledTime.Time)
	case t.isSuspended():
		return v1alpha1.MissedSuspended
	case t.isTooLate(pending.ScheduledTime.Time):
		return v1alpha1.MissedTooLate
	default:
		return ""
	}
}

// startOf returns when a pending run had to start.
func (t *times) startOf(pending *v1alpha1.ScheduledRun) time.Time {
	if pending.RerunID != "" {
		return t.startOfRequested(pending.ScheduledTime.Time)
	}
	return t.startTime(pending.ScheduledTime.Time)
}

// retryLater tries a refused time again. The wait is as long as the time is late.
func (t *times) retryLater(pending *v1alpha1.ScheduledRun) {
	t.timer.RequeueWithin(min(max(t.Now.Sub(t.startOf(pending)), minRefusedRetry), maxRefusedRetry))
}

// missPending counts the pending time as missed.
func (t *times) missPending(reason, message string) {
	pending := t.status.Pending
	t.status.Pending = nil
	if pending.RerunID != "" {
		if reason == v1alpha1.MissedSuspended { // only a backfill, which continues when it is resumed
			t.reopenRequested(pending.ScheduledTime.Time)
			return
		}
		t.status.Rerun.Missed++
	}
	t.countMissed(pending.ScheduledTime.Time, 1, reason, decision.TruncateMessage(message, maxMissedMessage))
}

func (t *times) countStarted(created time.Time) {
	pending := t.status.Pending
	t.started = &StartedRun{Name: pending.Name, Due: t.startOf(pending), Created: created}
	t.status.Pending = nil
	t.status.Runs++
	if pending.RerunID != "" {
		t.status.Rerun.Runs++
	}
}

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
func (t *times) findDueTimes() dueTimes {
	var due dueTimes
	for next := range t.inEffect.Times(t.decidedUntil()) {
		start := t.startTime(next)
		isDue := !start.After(t.Now)
		if !isDue || len(due.times) == maxDueTimes {
			due.next, due.nextStart, due.hasMore = next, start, isDue
			break
		}
		due.times = append(due.times, next)
	}
	return due
}

// isReplaced reports whether the spec has another timetable than the due times.
func (t *times) isReplaced() bool { return t.inEffect != t.wanted }

// decidedUntil returns the time until which all times of the timetable are decided.
func (t *times) decidedUntil() time.Time { return decidedUntil(&t.status) }

func decidedUntil(status *v1alpha1.ScheduleStatus) time.Time {
	until := status.Timetable.Since.Time
	if last := status.LastScheduleTime; last != nil && last.After(until) {
		until = last.Time
	}
	return until
}

func (t *times) startTime(due time.Time) time.Time {
	return t.inEffect.StartTime(t.Schedule.UID, due, Jitter(t.spec))
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

func (t *times) isTooLate(due time.Time) bool {
	limit, found := maxLateness(t.spec)
	return found && t.Now.Sub(t.startTime(due)) > limit
}

// missTooLate counts the times that may no longer start, and returns the others.
func (t *times) missTooLate(due []time.Time) []time.Time {
	late := 0
	for late < len(due) && t.isTooLate(due[late]) {
		late++
	}
	t.miss(due[:late], v1alpha1.MissedTooLate)
	return due[late:]
}

func (t *times) miss(due []time.Time, reason string) {
	if len(due) == 0 {
		return
	}
	last := due[len(due)-1]
	t.countMissed(last, int64(len(due)), reason, "")
	t.status.LastScheduleTime = apiTime(last) // all times until then are decided
}

// missBecause counts a time as missed that was rejected.
func (t *times) missBecause(due time.Time, r rejection) {
	t.countMissed(due, 1, r.reason, decision.TruncateMessage(r.message, maxMissedMessage))
	t.status.LastScheduleTime = apiTime(due)
}

// countMissed counts times as missed that are recorded as decided elsewhere.
func (t *times) countMissed(last time.Time, count int64, reason, message string) {
	t.status.Missed += count
	t.status.LastMissed = &v1alpha1.MissedTime{Time: *apiTime(last), Explanation: v1alpha1.Explanation{Reason: reason, Message: message}}
	if t.missed == nil {
		t.missed = map[string]int64{}
	}
	t.missed[reason] += count
}

// apiTime returns a time in the precision of the API.
func apiTime(t time.Time) *metav1.Time { return new(metav1.NewTime(t.Truncate(time.Second))) }
