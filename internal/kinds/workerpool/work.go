package workerpool

import (
	"fmt"
	"math"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// undoneTime is how long work may be due without any that finishes, before the pool is not Ready.
	undoneTime = 5 * time.Minute
	// restTime is how long no work is due before a pool with messages that wait for a retry has no undone work.
	restTime = time.Minute
	// unavailableTime is how long the application of a worker may be unavailable. It is the time to start.
	unavailableTime = time.Minute
	// slotsWithoutResult is the number of slots of a rate limit after which work without a result is undone.
	slotsWithoutResult = 3
)

// WorkMemory is the memory of decisions about what workers finish. It is not stored; RestoreWork derives it from the status after a
// restart of the operator.
type WorkMemory struct {
	// UndoneSince is since when work is due and none has finished; zero if none is due. LastDue is when work was due last.
	UndoneSince, LastDue time.Time
	// Ended is true if attempts have ended in this time, none with success.
	Ended bool
	// IsUndone is true once this has lasted too long, until work finishes or none is due.
	IsUndone bool
	// HasMoved is true if an attempt has ended since the last observation.
	HasMoved bool
	// Workers by Pod; nil before the first observation, which only shows what to compare with.
	Workers map[string]WorkerProgress
	// Finished is the number of finished messages as the broker counts them; nil if it does not.
	Finished *int64
	// UnknownSince is since when the stats of the queues are unknown; zero if they are known.
	UnknownSince time.Time
}

// WorkerProgress is what a worker has finished.
type WorkerProgress struct {
	Succeeded, Ended int64
	// UnavailableSince is since when its application is unavailable; zero if it is available.
	UnavailableSince time.Time
}

// RestoreWork returns the memory of an operator that has started.
func RestoreWork(status *v1alpha1.WorkerPoolStatus) WorkMemory {
	var m WorkMemory
	if undone := decision.FindReason(status.Conditions, v1alpha1.ConditionDegraded, v1alpha1.ReasonNothingFinished); undone != nil {
		m.UndoneSince, m.IsUndone = undone.LastTransitionTime.Add(-undoneTime), true
	}
	if unknown := decision.FindReason(status.Conditions, v1alpha1.ConditionReady, v1alpha1.ReasonMetricsStale); unknown != nil {
		m.UnknownSince = unknown.LastTransitionTime.Add(-undoneTime)
	}
	return m
}

// observe returns the memory after an observation. Work is done by a success: a message that is given back, or that fails, is not done.
//
// While the stats of the queues are unknown, nothing is judged, and this time does not count.
func (m WorkMemory) observe(f *fleet) WorkMemory {
	workers, hasFinished, hasEnded, areCounted := m.readWorkers(f.Workers, f.now)
	m.Workers, m.HasMoved = workers, hasEnded || hasFinished
	if f.Stats == nil {
		if m.UnknownSince.IsZero() || m.UnknownSince.After(f.now) {
			m.UnknownSince = f.now
		}
		return m
	}
	if !m.UnknownSince.IsZero() && !m.UndoneSince.IsZero() {
		m.UndoneSince = m.UndoneSince.Add(max(0, f.now.Sub(m.UnknownSince)))
	}
	m.UnknownSince = time.Time{}
	// Workers that count nothing finish what the broker no longer has.
	if finished := f.Stats.Finished; !areCounted {
		hasFinished = hasFinished || finished == nil || m.Finished == nil || *finished > *m.Finished
	}
	m.Finished = f.Stats.Finished
	isEmpty := f.Stats.Backlog+f.Stats.Running == 0
	if !isEmpty {
		m.LastDue = f.now
	}
	// Between two attempts of a message, no work is due for a moment.
	isEmpty = isEmpty && (f.Stats.InFlightKnown && f.Stats.InFlight == 0 || f.now.Sub(m.LastDue) >= restTime)
	switch {
	case isEmpty:
		m.UndoneSince, m.Ended, m.IsUndone = time.Time{}, false, false
		return m
	case hasFinished, m.UndoneSince.IsZero(), m.UndoneSince.After(f.now):
		m.UndoneSince, m.Ended, m.IsUndone = f.now, false, false
		return m
	}
	m.Ended = m.Ended || hasEnded
	m.IsUndone = m.IsUndone || f.now.Sub(m.UndoneSince) >= m.undoneLimit(f)
	return m
}

// undoneLimit returns the time without a success after which due work is undone.
func (m *WorkMemory) undoneLimit(f *fleet) time.Duration {
	limit := undoneTime
	if rate := f.Limits.RatePerSecond; rate > 0 {
		limit = max(limit, time.Duration(slotsWithoutResult/rate*float64(time.Second)))
	}
	if f.Stats.Running > 0 && !m.Ended { // jobs may take this long, and any time if no other waits
		limit = max(limit, decision.DurationOr(f.rolloutSpec.ProgressDeadline, defaultProgressDeadline))
		if f.Stats.Backlog == 0 {
			limit = math.MaxInt64
		}
	}
	return limit
}

// readWorkers returns the progress of the workers, whether an attempt has succeeded or ended since the last observation, and whether all
// ready workers count their attempts.
func (m *WorkMemory) readWorkers(workers []Worker, now time.Time) (progressOf map[string]WorkerProgress, hasFinished, hasEnded, areCounted bool) {
	isFirst := m.Workers == nil
	progressOf, areCounted = map[string]WorkerProgress{}, true
	for i := range workers {
		w := &workers[i]
		known, found := m.Workers[w.Name]
		progress := known
		switch {
		case w.Stats == nil || w.Stats.Succeeded == nil:
			areCounted = areCounted && !(w.Running && w.IsReady())
		default:
			progress.Succeeded = *w.Stats.Succeeded
			progress.Ended = progress.Succeeded + ptr.Deref(w.Stats.Failed, 0) + ptr.Deref(w.Stats.Snoozed, 0)
			if progress.Succeeded < known.Succeeded || progress.Ended < known.Ended { // it has restarted
				known = WorkerProgress{}
			}
			hasFinished = hasFinished || !isFirst && progress.Succeeded > known.Succeeded
			hasEnded = hasEnded || (found || !isFirst) && progress.Ended > known.Ended
		}
		switch {
		case w.Stats != nil && w.Stats.Unavailable == "":
			progress.UnavailableSince = time.Time{}
		case w.Stats != nil && progress.UnavailableSince.IsZero():
			progress.UnavailableSince = now
		}
		progressOf[w.Name] = progress
	}
	return progressOf, hasFinished, hasEnded, areCounted
}

// undoneProblem returns that work is due and none finishes; nil if work finishes, or if the pool should have no workers. The problem with
// which workers fail says why.
func (f *fleet) undoneProblem(desired int32) *decision.Problem {
	if !f.work.IsUndone || desired == 0 {
		return nil
	}
	problem := &decision.Problem{Reason: v1alpha1.ReasonNothingFinished, Message: fmt.Sprintf(
		"work is due, and none has finished for %s", undoneTime)}
	for _, r := range f.revisions {
		if r.failure != nil {
			return &decision.Problem{Reason: r.failure.Reason, Message: problem.Message + ": " + r.failure.Message}
		}
	}
	return problem
}

// unknownMessage returns that nobody knows whether the work of a pool is done, because its stats have been unknown for too long; "" if they
// are known, or if the pool should have no workers.
func (f *fleet) unknownMessage(desired int32) string {
	autoscaling := f.Pool.Spec.Autoscaling
	mayWork := desired > 0 || autoscaling != nil && !autoscaling.Suspend
	if f.Stats != nil || !mayWork || f.now.Sub(f.work.UnknownSince) < undoneTime {
		return ""
	}
	return fmt.Sprintf("whether work is done has been unknown for %s: %s", undoneTime, f.StatsError)
}

// maxReasonBytes limits what a condition quotes from a worker.
const maxReasonBytes = 256

// findRevisionFailure returns why workers of a revision do no work: they do not start, their application is unavailable, or they give back
// every message. It returns nil if they work, or may still start to.
func findRevisionFailure(f *fleet, r *revisionState) *decision.Problem {
	for _, w := range r.workers {
		if failure := w.StartFailure; failure != nil {
			return &decision.Problem{Reason: failure.Reason, Message: "revision " + r.Name + ": worker " + w.Name + " does not start: " + failure.Message}
		}
	}
	if r.CreationFailure != "" {
		reason := v1alpha1.ReasonMinimumUnavailable
		if decision.ClassOfForbidden(r.CreationFailure) == decision.QuotaExceeded {
			reason = v1alpha1.ReasonQuotaExceeded
		}
		return &decision.Problem{Reason: reason, Message: "revision " + r.Name + ": its Pods cannot be created: " + r.CreationFailure}
	}
	// A handler of the revision that serves may have given back the last message for a reason.
	isJudged := r.Name != f.Pool.Status.CurrentRevision || f.Stats != nil && f.Stats.Backlog > 0
	for _, w := range r.workers {
		if w.Stats == nil || !w.isServing() {
			continue
		}
		since := f.work.Workers[w.Name].UnavailableSince
		switch {
		case w.Stats.Unavailable != "" && f.now.Sub(since) >= unavailableTime:
			return &decision.Problem{Reason: v1alpha1.ReasonApplicationUnavailable, Message: fmt.Sprintf(
				"revision %s: worker %s takes no messages: %s", r.Name, w.Name, decision.TruncateMessage(w.Stats.Unavailable, maxReasonBytes))}
		case isJudged && w.givesAllBack() && w.IsReady() && f.now.Sub(w.ReadySince) >= minProvenIdleTime:
			return &decision.Problem{Reason: v1alpha1.ReasonNothingFinished, Message: fmt.Sprintf(
				"revision %s: worker %s gives back every message and has finished none", r.Name, w.Name)}
		}
	}
	return nil
}

// givesAllBack reports whether the worker gave back messages and has finished none.
func (w *workerState) givesAllBack() bool {
	return w.Stats != nil && ptr.Deref(w.Stats.Snoozed, 0) > 0 && ptr.Deref(w.Stats.Succeeded, 0) == 0
}
