package worker

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

const unknownKeyDelay = time.Second

// startWithKeys reports whether a job may run now. If not, it settles the message.
func (w *Worker) startWithKeys(m *scheduler.LeasedMessage, job *Job) bool {
	if job.keys == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(w.settleContext, settleTimeout)
	start, err := job.keys.Start(ctx, job.SentTime, w.now())
	cancel()
	switch {
	case err != nil:
		w.log.Warn("Failed to read the key of a job; it is delivered again", "queue", job.Queue, "job", job.ID, "error", err, "retryAfter", unknownKeyDelay)
		w.releaseMessage(m, unknownKeyDelay)
	case start.Postponed > 0:
		w.log.Debug("Job waits for another one", "queue", job.Queue, "job", job.ID, "after", start.Postponed)
		w.releaseMessage(m, start.Postponed)
	case start.Duplicate:
		w.log.Info("Job is a duplicate", "queue", job.Queue, "job", job.ID)
		job.keys = nil // the other message has the keys
		w.settleWithRetry(m, resultDropped, func(ctx context.Context) error { return m.Ack(ctx, true) })
	case start.Dead != "":
		w.buryMessage(m, job, start.Dead, job.Attempt-1)
	default:
		return true
	}
	return false
}

// endFirst returns a function that records the end of a job, and then settles its message: if the worker is lost in between, the job is
// delivered again, and its key is not taken for long.
func (j *Job) endFirst(failed bool, settle func(context.Context) error) func(context.Context) error {
	if j.keys == nil {
		return settle
	}
	return func(ctx context.Context) error {
		if err := j.keys.End(ctx, failed); err != nil {
			return err
		}
		return settle(ctx)
	}
}
