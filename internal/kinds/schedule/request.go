package schedule

import (
	"cmp"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// MaxBackfill is the number of times of a backfill.
	MaxBackfill = 1000
	// maxActiveBackfill is the number of runs of a backfill that are active at the same time, where runs may be active beside others.
	maxActiveBackfill = 10
)

// hasRequest reports whether a time of a request may start.
func (t *times) hasRequest() bool {
	wanted, accepted := t.spec.Rerun, t.status.Rerun
	return accepted != nil && accepted.Left > 0 || wanted != nil && (accepted == nil || accepted.ID != wanted.ID)
}

// receiveRequest accepts a new request, and counts the times of a request that do not start any more. The times of a backfill are of
// the timetable that was in effect when it was accepted: another timetable ends it.
func (t *times) receiveRequest() {
	wanted, accepted := t.spec.Rerun, t.status.Rerun
	isAccepted := wanted != nil && accepted != nil && accepted.ID == wanted.ID
	switch {
	case accepted == nil || accepted.Left == 0:
	case !isAccepted:
		t.missRequested(v1alpha1.MissedCanceled)
	case wanted.To != nil && t.isReplaced():
		t.missRequested(v1alpha1.MissedScheduleChanged)
	}
	if wanted == nil || isAccepted || wanted.To != nil && t.isReplaced() {
		return
	}
	last, count := cmp.Or(wanted.From, &t.now), 1
	if wanted.To != nil {
		requested := RequestedTimes(t.wanted, wanted)
		last, count = wanted.To, len(requested)
		if count == MaxBackfill {
			last = apiTime(requested[count-1])
		}
	}
	t.status.Rerun = &v1alpha1.ScheduleRerunStatus{Rerun: v1alpha1.Rerun{ID: wanted.ID}, Since: t.now, To: *last, Left: int32(count)}
}

// RequestedTimes returns the times of a backfill, at most MaxBackfill.
func RequestedTimes(timetable *Timetable, request *v1alpha1.ScheduleRerun) []time.Time {
	var requested []time.Time
	for next := range timetable.Times(request.From.Add(-1)) {
		if next.After(request.To.Time) || len(requested) == MaxBackfill {
			break
		}
		requested = append(requested, next)
	}
	return requested
}

// missRequested counts the times of the request that have not started as missed.
func (t *times) missRequested(reason string) {
	request := t.status.Rerun
	t.countMissed(request.To.Time, int64(request.Left), reason, "")
	request.Missed, request.Left, request.LastTime = request.Missed+request.Left, 0, &request.To
}

// isBackfill reports whether the accepted request has a range of times. Only the spec knows, and without the request in the spec, its
// times do not start any more.
func (t *times) isBackfill() bool { return t.spec.Rerun != nil && t.spec.Rerun.To != nil }

// startRequested starts the next time of the request, unless something prevents it. A person who triggers a run wants it whatever
// spec.when says; a backfill runs the times that spec.when selects. A backfill waits for active runs where only one
// may be active, also where a run of the timetable or a triggered run would replace them: otherwise its runs would replace each other.
func (t *times) startRequested() {
	request := t.status.Rerun
	if request == nil || request.Left == 0 || t.status.Pending != nil || t.create != nil {
		return
	}
	isBackfill, active := t.isBackfill(), t.activeRuns()
	own := 0
	for i := range active {
		if active[i].RerunID == request.ID {
			own++
		}
	}
	next := t.nextRequested()
	obstacle := t.obstacleOfRequest(request.ID, next)
	switch {
	case isBackfill && (next.IsZero() || next.After(request.To.Time)): // the time zone has other rules since
		t.missRequested(v1alpha1.MissedScheduleChanged)
	case obstacle == v1alpha1.MissedSuspended: // a backfill continues when it is resumed
	case next.After(t.Now):
		t.timer.HasReached(next)
	case obstacle != "" && obstacle != v1alpha1.MissedSuspended:
		t.missRequested(obstacle)
	case t.NotReady != nil:
		t.problem = t.NotReady
	case len(active) > 0 && t.runsAlone():
		t.waitFor(active, !isBackfill && t.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyReplace)
		if limit := t.requestDeadline(); limit > 0 {
			t.timer.HasReached(t.startOfRequested(next).Add(limit + time.Millisecond))
		}
	case isBackfill && own >= maxActiveBackfill:
	case isBackfill && t.rejectionOf(next) != (rejection{}):
		rejected := t.rejectionOf(next)
		request.LastTime, request.Left, request.Missed = apiTime(next), request.Left-1, request.Missed+1
		t.countMissed(next, 1, rejected.reason, decision.TruncateMessage(rejected.message, maxMissedMessage))
		t.timer.RequeueWithin(time.Millisecond)
	default:
		request.LastTime, request.Left = apiTime(next), request.Left-1
		t.start(v1alpha1.ScheduledRun{Name: requestedName(t.Schedule, request, next), ScheduledTime: apiTime(next), RerunID: request.ID})
	}
}

// nextRequested returns the next time of the accepted request; zero without one.
func (t *times) nextRequested() time.Time {
	request := t.status.Rerun
	switch {
	case !t.isBackfill():
		return request.To.Time
	case request.LastTime == nil:
		return t.inEffect.Next(t.spec.Rerun.From.Add(-1))
	default:
		return t.inEffect.Next(request.LastTime.Time)
	}
}

// requestedName returns the name of a run of a request. It is as long as that of a time of the timetable can become.
func requestedName(s *v1alpha1.Schedule, request *v1alpha1.ScheduleRerunStatus, due time.Time) string {
	const digits = 10
	return s.Name + "-" + decision.HexDigest(fmt.Appendf(nil, "%s/%s/%d/%d", s.UID, request.ID, request.Since.Unix(), due.Unix()), digits)
}

// startOfRequested returns when the run of a requested time had to start: not before its time.
func (t *times) startOfRequested(due time.Time) time.Time {
	if since := t.status.Rerun.Since.Time; since.After(due) {
		return since
	}
	return due
}

// requestDeadline returns how late the run of a request may start; 0 without a limit. The deadline of a backfill would depend on how
// long its runs take, so it has none.
func (t *times) requestDeadline() time.Duration {
	if t.isBackfill() || t.spec.StartingDeadlineSeconds == nil {
		return 0
	}
	return time.Duration(*t.spec.StartingDeadlineSeconds) * time.Second
}

// obstacleOfRequest returns the reason for which a time of a request does not start any more; empty without one.
func (t *times) obstacleOfRequest(id string, due time.Time) string {
	limit := t.requestDeadline()
	switch {
	case t.spec.Rerun == nil || t.spec.Rerun.ID != id:
		return v1alpha1.MissedCanceled
	case t.isBackfill() && t.isSuspended():
		return v1alpha1.MissedSuspended
	case limit > 0 && t.Now.Sub(t.startOfRequested(due)) > limit:
		return v1alpha1.MissedTooLate
	default:
		return ""
	}
}

// reopenRequested lets a time of a backfill start later.
func (t *times) reopenRequested(due time.Time) {
	request := t.status.Rerun
	request.LastTime, request.Left = apiTime(due.Add(-time.Second)), request.Left+1
}
