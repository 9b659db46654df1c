package worker

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

const (
	// consumersPerPriority is the number of concurrent requests for one priority. While a request completes, the next one
	// already returns messages.
	consumersPerPriority = 2
	// pollTimeout is how long a request waits for a first message. Requests are never canceled, so draining may wait as long.
	pollTimeout = time.Second
)

// detachQueue stops consuming a queue, and appends it to retired. It requires the lock.
func (w *Worker) detachQueue(name string, retired []*scheduler.ScheduledQueue) []*scheduler.ScheduledQueue {
	q := w.queues[name]
	delete(w.queues, name)
	q.stop()
	if q.scheduled != nil {
		retired = append(retired, q.scheduled)
	}
	return retired
}

// consumeWithRetry waits until the queue exists on the broker, and consumes it until ctx ends.
func (w *Worker) consumeWithRetry(ctx context.Context, q *attachedQueue) {
	for failures := 1; ctx.Err() == nil; failures++ {
		consumers, limiter, err := w.openConsumers(ctx, q)
		if err == nil {
			w.consumeQueue(ctx, q, consumers, limiter)
			return
		}
		w.metrics.recordFetchError(err)
		w.waitToRetry(ctx, failures, "Failed to open a queue", "queue", q.config.Name, "error", err)
	}
}

// openConsumers returns consumersPerPriority consumers for each priority, in order, and the rate limiter of the queue. It sets the
// recorder of a queue that keeps the states of its jobs.
func (w *Worker) openConsumers(ctx context.Context, q *attachedQueue) ([]broker.Consumer, broker.RateLimiter, error) {
	config := &q.config
	subscription, err := w.engine.Subscribe(ctx, config.Name)
	if err != nil {
		return nil, nil, err
	}
	var consumers []broker.Consumer
	for _, p := range config.Priorities {
		for range consumersPerPriority {
			consumer, err := subscription.Consumer(ctx, p.Name)
			if err != nil {
				stopConsumers(consumers)
				return nil, nil, err
			}
			consumers = append(consumers, consumer)
		}
	}
	recorder, err := w.openRecorder(ctx, subscription, config)
	if err != nil {
		stopConsumers(consumers)
		return nil, nil, err
	}
	limiter, err := subscription.RateLimiter(ctx)
	if err != nil {
		stopConsumers(consumers)
		recorder.stop()
		return nil, nil, err
	}
	q.recorder = recorder
	return consumers, limiter, nil
}

func stopConsumers(consumers []broker.Consumer) {
	for _, consumer := range consumers {
		if consumer != nil {
			consumer.Stop()
		}
	}
}

func (w *Worker) consumeQueue(ctx context.Context, q *attachedQueue, consumers []broker.Consumer, limiter broker.RateLimiter) {
	if limiter != nil {
		defer limiter.Stop()
	}
	defer q.recorder.stop()
	w.mu.Lock()
	if ctx.Err() != nil { // the queue was detached in the meantime
		w.mu.Unlock()
		stopConsumers(consumers)
		return
	}
	w.reports.setRecorder(q.config.Name, q.recorder)
	q.scheduled = scheduler.NewScheduledQueue(q.config, limiter)
	w.configureScheduler()
	w.mu.Unlock()
	w.log.Info("Consuming a queue", "queue", q.config.Name)

	for i, consumer := range consumers {
		if consumer != nil {
			w.background.Go(func() { w.fetchMessages(ctx, q, q.scheduled.Buffers[i/consumersPerPriority], consumer) })
		}
	}
	if limiter != nil {
		w.reserveSlots(ctx, q.scheduled, limiter)
	}
	<-ctx.Done()
}

// fetchMessages fetches messages of one priority whenever the scheduler has capacity.
func (w *Worker) fetchMessages(ctx context.Context, q *attachedQueue, buffer *scheduler.PriorityBuffer, consumer broker.Consumer) {
	defer consumer.Stop()
	for failures := 0; ; {
		request, ok := w.scheduler.NextRequest(buffer)
		if !ok {
			return
		}
		receive := func(d broker.Delivery) { w.scheduler.AddMessage(buffer, request, d) }
		var received int
		var err error
		if request.Poll {
			received, err = consumer.Next(ctx, pollTimeout, receive)
		} else {
			received, err = consumer.Fetch(ctx, request.Messages, receive)
		}
		w.scheduler.CompleteRequest(buffer, request, received, err)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		w.metrics.recordFetchError(err)
		w.waitToRetry(ctx, failures, "Failed to fetch messages", "queue", q.config.Name, "error", err)
	}
}

func (w *Worker) reserveSlots(ctx context.Context, q *scheduler.ScheduledQueue, limiter broker.RateLimiter) {
	for failures := 0; ; {
		count, ok := w.scheduler.NextReservation(q)
		if !ok {
			return
		}
		requestedAt := time.Now()
		slots, err := limiter.Reserve(ctx, count)
		if err != nil {
			failures++
			w.waitToRetry(ctx, failures, "Failed to reserve slots under the rate limit; no job of the queue starts", "queue", q.Config.Name, "error", err)
			continue
		}
		failures = 0
		w.scheduler.SlotsReserved(q, len(slots), slots[0].Sub(requestedAt))
		// The next slots are reserved before these are due, because each reservation would otherwise leave a gap of a round trip.
		w.background.Go(func() { w.openSlotsWhenDue(ctx, q, slots) })
	}
}

// openSlotsWhenDue lets one job start at each of the times, which are in order.
func (w *Worker) openSlotsWhenDue(ctx context.Context, q *scheduler.ScheduledQueue, slots []time.Time) {
	for len(slots) > 0 {
		due := 0
		for now := time.Now(); due < len(slots) && !slots[due].After(now); {
			due++
		}
		if due == 0 && ctx.Err() == nil {
			_ = clock.SleepContext(ctx, time.Until(slots[0]))
			continue
		}
		if due == 0 {
			due = len(slots) // the queue is detached: release its pending slots
		}
		w.scheduler.OpenSlots(q, due)
		slots = slots[due:]
	}
}

// extendTimeoutDivisor leaves time for another extension before the lease expires.
const extendTimeoutDivisor = 6

// maintainLeases extends leases, and makes the scheduler give back messages that wait for too long. The lease of a message that
// could not be extended is due again at the next update.
func (w *Worker) maintainLeases(ctx context.Context) {
	ticker := time.NewTicker(scheduler.UpdateInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.scheduler.UpdatePrefetch()
			for _, m := range w.scheduler.LeasesToExtend() {
				w.background.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, m.QueueConfig().Lease/extendTimeoutDivisor)
					defer cancel()
					sentAt := w.now()
					err := m.ExtendLease(ctx)
					w.metrics.extensions.WithLabelValues(successLabel(err == nil)).Inc()
					w.scheduler.LeaseExtended(m, sentAt, err == nil)
				})
			}
		}
	}
}
