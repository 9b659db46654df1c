package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

const (
	settleTimeout = 5 * time.Second
	// unknownAttemptDelay is the time until redelivery of a message whose attempts could not be counted.
	unknownAttemptDelay = time.Second
	// suspectPatience is how long a job that must run alone waits for the other jobs of its worker, which starts none meanwhile. It doubles
	// each time that the message is given back, at most maxPatienceShift times, so that the job runs at last, however long others take.
	suspectPatience  = 15 * time.Second
	maxPatienceShift = 12
	// suspectReturnDelay gives a worker without jobs the time to take the message.
	suspectReturnDelay = 5 * time.Second
)

var errShutdown = errors.New("the worker is shutting down")

func (w *Worker) runMessage(m *scheduler.LeasedMessage) scheduler.JobOutcome {
	history, err := m.History(w.settleContext)
	if err != nil {
		return w.postpone(m, err)
	}
	attempt := history.Attempt()
	message := m.Message()
	retry, kindTimeout := m.QueueConfig().Retry, time.Duration(0)
	if w.mux != nil && w.mux.kinds[message.Kind] != nil {
		kind := w.mux.kinds[message.Kind]
		retry, kindTimeout = kind.retry.over(retry), kind.timeout
	}
	startedAt := w.now()
	job := &Job{
		ID: message.ID, Kind: message.Kind, Queue: m.QueueConfig().Name, Priority: message.Priority, Payload: message.Payload,
		Headers: message.Headers, Attempt: attempt, MaxAttempts: retry.MaxAttempts, SentTime: message.SentTime, retry: retry,
		history: history,
	}
	job.progress = &progressRecorder{board: &w.progress, job: job, startTime: startedAt}
	job.report = w.newReport(m, job, startedAt)
	if w.keys != nil {
		job.keys = w.keys.Of(job.Queue, message.ID, message.Headers)
	}
	if attempt > retry.MaxAttempts {
		w.buryMessage(m, job, lossReason(history), attempt-1)
		return scheduler.OutcomeUnknown
	}
	timeout, err := m.QueueConfig().TimeoutOf(message.Headers)
	if err != nil {
		w.buryMessage(m, job, err.Error(), attempt-1)
		return scheduler.OutcomeUnknown
	}
	if history.IsSuspect() {
		w.log.Warn("The process of a job was lost repeatedly; the job runs without others", "queue", job.Queue, "job", job.ID, "losses", history.Lost)
		if !w.scheduler.RunAlone(m, suspectPatience<<min(history.Released, maxPatienceShift)) {
			w.releaseMessage(m, suspectReturnDelay)
			return scheduler.OutcomeUnknown
		}
		job.isAlone = true
	}
	if !w.startWithKeys(m, job) {
		return scheduler.OutcomeUnknown
	}
	defer job.keys.Keep(w.settleContext)()
	if history.Lost > 0 {
		if err := m.MarkStart(w.settleContext, job.isAlone); err != nil {
			return w.postpone(m, err)
		}
	}
	return w.runJob(m, job, shorterTimeout(timeout, kindTimeout), startedAt)
}

// postpone gives back a message whose attempts cannot be counted.
func (w *Worker) postpone(m *scheduler.LeasedMessage, err error) scheduler.JobOutcome {
	w.log.Warn("Failed to count the attempts of a job; it is delivered again", "error", err, "retryAfter", unknownAttemptDelay)
	w.settleWithRetry(m, resultPostponed, func(ctx context.Context) error { return m.Lose(ctx, unknownAttemptDelay, err.Error()) })
	return scheduler.OutcomeUnknown
}

func lossReason(h broker.History) string {
	if h.LostAlone == 0 {
		return "the job failed in each of its attempts"
	}
	return fmt.Sprintf("the process of the worker was lost in %d of the attempts, in %d of them while it ran no other job", h.Lost, h.LostAlone)
}

func (w *Worker) runJob(m *scheduler.LeasedMessage, job *Job, timeout time.Duration, startedAt time.Time) scheduler.JobOutcome {
	handlerContext, end := job.report.begin(w.handlerContext)
	defer end()
	if errors.Is(context.Cause(handlerContext), ErrCanceled) {
		return w.settleByResult(m, job, ErrCanceled, startedAt)
	}
	defer job.progress.end()
	w.metrics.observeWait(job.Queue, startedAt.Sub(job.SentTime))
	ctx, span := w.tracer.start(handlerContext, job)
	err := w.callWithTimeout(ctx, m, job, timeout)
	w.endSpan(span, m, job, err)
	finishedAt := w.now()
	w.metrics.observeDuration(job.Queue, finishedAt.Sub(startedAt))
	// Jobs that were interrupted or canceled say nothing about the handler and are not counted.
	isComplete := !w.wasInterrupted(err) && !job.report.wasCanceled(err)
	switch {
	case err == nil:
		w.succeeded.Add(1)
	case isComplete && (IsSnooze(err) || staysInQueue(job, m.QueueConfig(), err)):
		w.snoozed.Add(1)
	case isComplete:
		w.failed.Add(1)
	}
	if isComplete {
		w.attempts.record(finishedAt, finishedAt.Sub(startedAt), returnsToQueue(job, err) || staysInQueue(job, m.QueueConfig(), err))
	}
	return w.settleByResult(m, job, err, finishedAt)
}

func (w *Worker) callHandler(ctx context.Context, job *Job) (err error) {
	defer func() {
		if value := recover(); value != nil {
			w.log.Error("Handler panicked", "queue", job.Queue, "job", job.ID, "panic", value, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return w.handler(ctx, job)
}

// returnsToQueue reports whether the message of a job with this result is delivered again.
func returnsToQueue(job *Job, err error) bool {
	switch {
	case IsSnooze(err):
		return true
	case err == nil:
		return false
	case IsProcessLost(err):
		return job.history.AfterStart(job.isAlone).Attempt() <= job.MaxAttempts
	}
	return !IsDeadLetter(err) && job.Attempt < job.MaxAttempts
}

// wasInterrupted reports whether the handler returned early because the worker shuts down.
func (w *Worker) wasInterrupted(err error) bool {
	return errors.Is(context.Cause(w.handlerContext), errShutdown) && (errors.Is(err, context.Canceled) || errors.Is(err, errShutdown))
}

func (w *Worker) settleByResult(m *scheduler.LeasedMessage, job *Job, err error, finishedAt time.Time) scheduler.JobOutcome {
	if m.IsLeaseLost(finishedAt) && w.isAlreadySettled(m, err) {
		return jobOutcome(err)
	}
	snoozeTime, isSnoozed := SnoozeAfter(err)
	switch {
	case err == nil:
		w.acknowledge(m, job)
	case job.report.wasCanceled(err):
		w.log.Info("Job canceled", "queue", job.Queue, "job", job.ID, "attempt", job.Attempt)
		ack := job.endFirst(true, func(ctx context.Context) error { return m.Ack(ctx, true) })
		w.settleWithRetry(m, resultCanceled, job.report.recordFirst(func(e *jobstate.Entry) { e.State = jobstate.Canceled }, ack))
		return scheduler.OutcomeUnknown
	case w.wasInterrupted(err):
		job.report.putBack(w.settleContext, 0)
		w.releaseMessage(m, 0)
		return scheduler.OutcomeUnknown
	case isSnoozed:
		w.log.Warn("Job snoozed", "queue", job.Queue, "job", job.ID, "after", snoozeTime, "error", err)
		w.availability.suspect()
		job.report.putBack(w.settleContext, snoozeTime)
		w.snoozeMessage(m, snoozeTime)
	case staysInQueue(job, m.QueueConfig(), err):
		w.log.Warn("Job returns to its queue", "queue", job.Queue, "job", job.ID, "after", unknownKindDelay, "error", err)
		job.report.putBack(w.settleContext, unknownKindDelay)
		w.snoozeMessage(m, unknownKindDelay)
	case IsProcessLost(err):
		w.settleLoss(m, job, err)
	case !returnsToQueue(job, err):
		w.buryMessage(m, job, err.Error(), job.Attempt)
	default:
		delay := retryDelay(job, err)
		w.log.Warn("Job failed and will be retried", "queue", job.Queue, "job", job.ID, "attempt", job.Attempt, "after", delay, "error", err)
		job.report.retry(w.settleContext, err.Error(), delay)
		w.settleWithRetry(m, resultRetried, func(ctx context.Context) error { return m.Retry(ctx, delay, err.Error()) })
	}
	return jobOutcome(err)
}

// settleLoss retries a job whose process was lost, unless it was lost alone too often.
func (w *Worker) settleLoss(m *scheduler.LeasedMessage, job *Job, err error) {
	after := job.history.AfterStart(job.isAlone)
	if !returnsToQueue(job, err) {
		w.buryMessage(m, job, lossReason(after)+": "+err.Error(), after.Attempt()-1)
		return
	}
	delay := retryDelay(job, err)
	w.log.Warn("The process of a job was lost", "queue", job.Queue, "job", job.ID, "losses", after.Lost, "alone", job.isAlone, "after", delay, "error", err)
	job.report.retry(w.settleContext, err.Error(), delay)
	w.settleWithRetry(m, resultRetried, func(ctx context.Context) error { return m.Lose(ctx, delay, err.Error()) })
}

// retryDelay returns the delay until the next attempt of a job that failed.
func retryDelay(job *Job, err error) time.Duration {
	if delay, found := RetryAfter(err); found {
		return delay
	}
	delay := job.retry.DelayAfter(job.Attempt, rand.Float64()) //nolint:gosec // it spreads retries and protects nothing
	if IsUnknownKind(err) {
		delay = max(delay, unknownKindDelay)
	}
	return delay
}

// jobOutcome returns what a result says about the services on which the job depends. A job that is dead-lettered on purpose is invalid
// itself and does not count as a failure.
func jobOutcome(err error) scheduler.JobOutcome {
	switch {
	case err == nil || IsDeadLetter(err):
		return scheduler.OutcomeSucceeded
	case IsUnknownKind(err):
		return scheduler.OutcomeUnknown
	}
	return scheduler.OutcomeFailed
}

// isAlreadySettled handles a job that finished after its lease was lost. It returns false, so that this worker settles the message, only if
// the job succeeded and no other worker has settled the message. Otherwise it abandons the message.
func (w *Worker) isAlreadySettled(m *scheduler.LeasedMessage, err error) bool {
	wasRemoved, checkError := m.WasRemoved(w.settleContext)
	switch {
	case wasRemoved, err != nil:
		w.metrics.countMessage(m.QueueConfig().Name, resultStale)
	case checkError == nil:
		w.metrics.countMessage(m.QueueConfig().Name, resultLate)
		return false
	}
	w.log.Warn("Job finished after its lease was lost", "queue", m.QueueConfig().Name, "job", m.Message().ID,
		"succeeded", err == nil, "removedByOtherWorker", wasRemoved)
	if !wasRemoved && err == nil {
		return false
	}
	m.Abandon()
	return true
}

// acknowledge removes the message of a job that is done. It waits for the broker's confirmation only while the worker drains, because the
// connection closes soon after.
func (w *Worker) acknowledge(m *scheduler.LeasedMessage, job *Job) {
	ack := func(ctx context.Context) error { return m.Ack(ctx, true) }
	if job.report == nil && job.keys == nil {
		if !w.scheduler.IsDraining() && m.Ack(w.settleContext, false) == nil {
			w.metrics.countMessage(m.QueueConfig().Name, resultDone)
			return
		}
		w.settleWithRetry(m, resultDone, ack)
		return
	}
	if !w.scheduler.IsDraining() {
		ack = func(ctx context.Context) error { return m.Ack(ctx, false) }
	}
	settle, refusal := job.report.recordFirst(func(e *jobstate.Entry) {
		e.State, e.Result = jobstate.Done, job.result
	}, job.endFirst(false, ack)), error(nil)
	w.settleWithRetry(m, resultDone, func(ctx context.Context) error {
		err := settle(ctx)
		if broker.ClassOf(err) != broker.ClassTooLarge {
			return err
		}
		refusal = err
		return errResultRefused
	})
	if refusal != nil { // the work is done, and would be repeated in vain
		w.buryMessage(m, job, "the broker refuses the result: "+refusal.Error(), job.Attempt)
	}
}

// errResultRefused: the broker does not store the result of a job, because it is too large.
var errResultRefused = errors.New("the result is too large")

// buryMessage makes the message a dead letter, or drops it if the queue keeps none.
func (w *Worker) buryMessage(m *scheduler.LeasedMessage, job *Job, reason string, attempts int) {
	config := m.QueueConfig()
	isKept := config.DeadLetter.Enabled
	w.log.Warn("Job failed and will not be retried", "queue", config.Name, "job", m.Message().ID, "attempts", attempts, "deadLettered", isKept, "reason", reason)
	result, settle := resultDeadLettered, func(ctx context.Context) error { return m.Bury(ctx, reason, attempts) }
	if !isKept {
		result, settle = resultDropped, func(ctx context.Context) error { return m.Ack(ctx, true) }
	}
	isSettled := w.settleWithRetry(m, result, job.report.recordFirst(func(e *jobstate.Entry) {
		e.State, e.Attempt, e.Error = jobstate.Dead, attempts, reason
	}, job.endFirst(true, settle)))
	if !isSettled && attempts == job.Attempt {
		_ = m.CountFailure(w.settleContext) // so that the next delivery does not run the job again; settleWithRetry has logged the cause
	}
}

// releaseMessage gives back a message that no handler has seen, or whose handler the end of the worker interrupted, without counting an
// attempt.
func (w *Worker) releaseMessage(m *scheduler.LeasedMessage, after time.Duration) {
	w.returned.add(w.now(), after)
	w.settleWithRetry(m, resultReleased, func(ctx context.Context) error { return m.Release(ctx, after) })
}

// snoozeMessage gives back a message that the handler could not run now, without counting an attempt.
func (w *Worker) snoozeMessage(m *scheduler.LeasedMessage, after time.Duration) {
	w.returned.add(w.now(), after)
	w.settleWithRetry(m, resultSnoozed, func(ctx context.Context) error { return m.Release(ctx, after) })
}

// releaseUnused releases a message that no executor has started.
func (w *Worker) releaseUnused(m *scheduler.LeasedMessage) {
	w.background.Go(func() {
		w.releaseMessage(m, m.ReleaseDelay())
		w.scheduler.MarkReleased(m)
	})
}

// runExecutor runs one message after another until the scheduler stops.
func (w *Worker) runExecutor() {
	var outcome scheduler.JobOutcome
	for m := w.scheduler.NextMessage(nil, outcome); m != nil; m = w.scheduler.NextMessage(m, outcome) {
		outcome = w.runMessage(m)
	}
}

// isRefusal reports whether a broker refuses a request for good.
func isRefusal(err error) bool {
	class := broker.ClassOf(err)
	return class == broker.ClassInvalid || class == broker.ClassTooLarge
}

// settleWarning is the number of failures after which the worker logs that it still tries to settle a message.
const settleWarning = 5

// settleWithRetry sends the result of a job to the broker. It retries until the lease expires, because the broker then delivers the message
// again.
func (w *Worker) settleWithRetry(m *scheduler.LeasedMessage, result string, send func(context.Context) error) (isSettled bool) {
	for failures := 1; ; failures++ {
		ctx, cancel := context.WithTimeout(w.settleContext, settleTimeout)
		err := send(ctx)
		cancel()
		if err == nil {
			w.metrics.countMessage(m.QueueConfig().Name, result)
			return true
		}
		if errors.Is(err, errResultRefused) {
			return false // its job becomes a dead letter
		}
		if m.IsLeaseLost(w.now()) || w.settleContext.Err() != nil || isRefusal(err) {
			w.metrics.countMessage(m.QueueConfig().Name, resultUnsettled)
			w.log.Error("Failed to settle a message; the broker delivers it again", "queue", m.QueueConfig().Name, "job", m.Message().ID, "result", result, "error", err)
			return false
		}
		if failures == settleWarning {
			w.log.Warn("Settling a message fails and is repeated", "queue", m.QueueConfig().Name, "job", m.Message().ID, "result", result, "error", err)
		}
		_ = clock.SleepContext(w.settleContext, broker.RetryDelay(failures))
	}
}
