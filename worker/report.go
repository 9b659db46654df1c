package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

const (
	// firstReportDelay is the time after which a running job is reported. Jobs that end earlier need only one report.
	firstReportDelay = 100 * time.Millisecond
	// reportInterval is the shortest time between two reports about the progress of a job.
	reportInterval = time.Second
	reportTimeout  = 5 * time.Second
	// unhealthyTime is how long reports without a result are omitted after a failure, so that a store that does not respond does not hold up
	// the queue.
	unhealthyTime = 5 * time.Second
)

// ErrCanceled is the cause of the end of a handler's context when somebody cancels the job.
var ErrCanceled = errors.New("the job was canceled")

// attemptReport reports the state of an attempt to a queue that keeps the states of its jobs. Nil reports nothing.
type attemptReport struct {
	w         *Worker
	recorder  *stateRecorder
	m         *scheduler.LeasedMessage
	job       *Job
	startTime time.Time

	// ctx is the context of the handler, and cancel ends it.
	ctx    context.Context //nolint:containedctx // the context of the attempt, whose cause is ErrCanceled if the job was canceled
	cancel context.CancelCauseFunc

	// mu serializes reports, and guards the fields below.
	mu       sync.Mutex
	timer    *time.Timer
	hasEnded bool
	// reportedTime is when a running job was last reported; zero: not yet. progress is the reported progress.
	reportedTime time.Time
	progress     *progressUpdate
	// overdue expires when the handler ignored its cancellation for too long.
	overdue *time.Timer
}

// newReport returns nil if the queue does not keep the states of its jobs.
func (w *Worker) newReport(m *scheduler.LeasedMessage, job *Job, now time.Time) *attemptReport {
	if !m.QueueConfig().Results.IsEnabled() {
		return nil
	}
	recorder := w.reports.recorderOf(job.Queue)
	if recorder == nil {
		return nil
	}
	return &attemptReport{w: w, recorder: recorder, m: m, job: job, startTime: now}
}

// begin returns the context of the handler, which has ended if the job was canceled, and a function that ends the attempt.
func (r *attemptReport) begin(ctx context.Context) (context.Context, func()) {
	if r == nil {
		return ctx, func() {}
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.mu.Lock()
	r.timer = time.AfterFunc(firstReportDelay, r.reportRunning)
	r.mu.Unlock()
	r.w.reports.add(r)
	return r.ctx, func() {
		r.w.reports.remove(r)
		r.stop()
		r.cancel(nil)
	}
}

func (r *attemptReport) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasEnded = true
	for _, timer := range []*time.Timer{r.timer, r.overdue} {
		if timer != nil {
			timer.Stop()
		}
	}
}

func (r *attemptReport) requestCancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasEnded && r.overdue == nil {
		r.overdue = time.AfterFunc(timeoutGracePeriod, func() { r.w.markOverdue(r.m, "canceled", true) })
	}
	r.cancel(ErrCanceled)
}

// wasCanceled reports whether the handler returned an error after the job was canceled.
func (r *attemptReport) wasCanceled(err error) bool {
	return r != nil && err != nil && r.ctx != nil && errors.Is(context.Cause(r.ctx), ErrCanceled)
}

// reportRunning reports that the job runs, and its progress, unless there is nothing new.
func (r *attemptReport) reportRunning() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.w.now()
	if r.hasEnded || r.m.IsLeaseLost(now) {
		return
	}
	defer func() { r.timer.Reset(reportInterval) }()
	const reportsPerLease = 3
	progress := r.job.progress.latest.Load()
	if progress == r.progress && !r.reportedTime.IsZero() && now.Sub(r.reportedTime) < r.m.QueueConfig().Lease/reportsPerLease {
		return
	}
	entry := r.entry(jobstate.Running)
	entry.LeaseSeconds = r.m.QueueConfig().Lease.Seconds()
	if progress != nil {
		entry.Progress = &jobstate.Progress{Fraction: progress.fraction, Text: progress.text}
	}
	if r.record(r.w.settleContext, entry, false) == nil {
		r.reportedTime, r.progress = now, progress
	}
}

func (r *attemptReport) entry(state jobstate.State) *jobstate.Entry {
	return &jobstate.Entry{
		ID: r.job.ID, State: state, Kind: r.job.Kind, Priority: r.job.Priority, Attempt: r.job.Attempt, MaxAttempts: r.job.MaxAttempts,
		StartTime: r.startTime.UTC(),
	}
}

// record stores an entry. The caller holds the lock.
func (r *attemptReport) record(ctx context.Context, entry *jobstate.Entry, isRequired bool) error {
	s := r.recorder
	s.mu.Lock()
	isUnhealthy := r.w.now().Sub(s.failedTime) < unhealthyTime
	s.mu.Unlock()
	if isUnhealthy && !isRequired {
		return errUnhealthy
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := s.Record(ctx, r.m.Delivery, entry)
	s.mu.Lock()
	if s.failedTime = (time.Time{}); err != nil {
		s.failedTime = r.w.now()
	}
	s.mu.Unlock()
	r.w.metrics.reports.WithLabelValues(successLabel(err == nil)).Inc()
	if err != nil {
		r.w.log.Warn("Failed to store the state of a job", "queue", r.job.Queue, "job", r.job.ID, "state", entry.State, "error", err)
	}
	return err
}

var errUnhealthy = errors.New("the store of states failed a moment ago")

// recordFirst returns a function that stores the last state of a job and then settles its message: if the worker is lost in between, the
// job is delivered again, and no result is lost. Without a result, the message is settled even if the state cannot be stored; the job is
// then unknown.
func (r *attemptReport) recordFirst(change func(*jobstate.Entry), settle func(context.Context) error) func(context.Context) error {
	if r == nil {
		return settle
	}
	return func(ctx context.Context) error {
		r.stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		entry := r.entry(jobstate.Unknown)
		change(entry)
		isRequired := entry.Result != nil
		if err := r.record(ctx, entry, isRequired); err != nil && isRequired {
			return err
		}
		if err := settle(ctx); err != nil {
			return err
		}
		// Before it was settled, the job could be delivered again, and the request to cancel it was needed.
		if r.w.reports.forgetCancel(r.job.Queue, r.job.ID) {
			if err := r.recorder.EndCancel(ctx, r.job.ID); err != nil {
				r.w.log.Warn("Failed to remove the request to cancel a job", "queue", r.job.Queue, "job", r.job.ID, "error", err)
			}
		}
		return nil
	}
}

func (r *attemptReport) retry(ctx context.Context, reason string, delay time.Duration) {
	if r == nil {
		return
	}
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.entry(jobstate.Retrying)
	entry.Error, entry.NextTime = reason, r.w.now().Add(delay).UTC()
	_ = r.record(ctx, entry, false) // it is logged
}

// putBack reports that a job returns to its queue without an attempt, if it was reported as running.
func (r *attemptReport) putBack(ctx context.Context, delay time.Duration) {
	if r == nil {
		return
	}
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reportedTime.IsZero() {
		return
	}
	entry := r.entry(jobstate.Waiting)
	entry.Attempt--
	if entry.Attempt > 0 {
		entry.State = jobstate.Retrying
	}
	entry.NextTime = r.w.now().Add(delay).UTC()
	_ = r.record(ctx, entry, false) // it is logged
}

// stateRecorder is the recorder of a queue, and when its store last failed.
type stateRecorder struct {
	broker.JobRecorder

	mu         sync.Mutex
	failedTime time.Time
}

func (s *stateRecorder) stop() {
	if s != nil {
		s.Stop()
	}
}

// openRecorder returns nil for a queue that does not keep the states of its jobs.
func (w *Worker) openRecorder(ctx context.Context, subscription broker.Subscription, config *scheduler.QueueConfig) (*stateRecorder, error) {
	if !config.Results.IsEnabled() {
		return nil, nil //nolint:nilnil // nil reports nothing
	}
	recorder, err := subscription.JobRecorder(ctx, func(id string, request jobstate.Cancel) { //nolint:contextcheck // ctx ends before
		w.reports.requestCancel(config.Name, id, request, config.Results.Retention, w.now())
	})
	if err != nil {
		return nil, err
	}
	return &stateRecorder{JobRecorder: recorder}, nil
}
