package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

var errJobTimeout = errors.New("the job exceeded its timeout")

// timeoutGracePeriod is the time that a handler has to return after its context has ended. Then the job is overdue: its lease expires, the
// broker delivers it again, and a drain does not wait for it.
const timeoutGracePeriod = 5 * time.Second

// shorterTimeout returns the shorter of two timeouts. 0 means no limit.
func shorterTimeout(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (w *Worker) callWithTimeout(ctx context.Context, m *scheduler.LeasedMessage, job *Job, timeout time.Duration) error {
	if timeout == 0 {
		return w.callHandler(ctx, job)
	}
	overdue := time.AfterFunc(timeout+timeoutGracePeriod, func() { w.markOverdue(m, "timeout", timeout) }) //nolint:contextcheck // ctx ends before
	defer overdue.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errJobTimeout)
	defer cancel()
	err := w.callHandler(ctx, job)
	if err == nil || !errors.Is(context.Cause(ctx), errJobTimeout) {
		return err
	}
	w.metrics.timeouts.Inc()
	return fmt.Errorf("%w of %s: %w", errJobTimeout, timeout, err)
}

func (w *Worker) markOverdue(m *scheduler.LeasedMessage, details ...any) {
	w.scheduler.MarkOverdue(m)
	ctx, cancel := context.WithTimeout(w.settleContext, settleTimeout)
	defer cancel()
	if err := m.CountFailure(ctx); err != nil {
		w.log.Warn("Failed to count an attempt", "queue", m.QueueConfig().Name, "job", m.Message().ID, "error", err)
	}
	m.Abandon()
	w.log.Error("A handler ignores the end of its context; the job is delivered again",
		append([]any{"queue", m.QueueConfig().Name, "job", m.Message().ID}, details...)...)
}
