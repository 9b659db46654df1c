package asynq

import (
	"context"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// queueSubscription is a queue as its workers see it.
type queueSubscription struct {
	*Engine
	queue string

	mu sync.Mutex
	// servedPriority priority that was asked for; empty: none was.
	servedPriority string
}

// Subscribe is where a worker gets the queue's messages from.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	if err := e.checkQueueExists(ctx, queue); err != nil {
		return nil, redisclient.ClassifyError("looking for the queue "+queue, err)
	}
	return &queueSubscription{Engine: e, queue: queue}, nil
}

// Consumer leads to the messages of one priority. asynq has none, so the first that is asked
// for, the most urgent, has all messages, and the others have none.
func (o *queueSubscription) Consumer(_ context.Context, priority string) (broker.Consumer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.servedPriority == "" {
		o.servedPriority = priority
	}
	if o.servedPriority != priority {
		return emptyConsumer{}, nil
	}
	return o.newTaskConsumer(o.queue, priority)
}

// RateLimiter is none: asynq knows of no limit.
func (*queueSubscription) RateLimiter(context.Context) (broker.RateLimiter, error) {
	return noRateLimit{}, nil
}

// emptyConsumer is a lane with no messages.
type emptyConsumer struct{}

// Fetch has nothing to hand out.
func (emptyConsumer) Fetch(context.Context, int, func(broker.Delivery)) (int, error) { return 0, nil }

// Next waits in vain.
func (emptyConsumer) Next(ctx context.Context, wait time.Duration, _ func(broker.Delivery)) (int, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return 0, nil
}

// Stop ends it.
func (emptyConsumer) Stop() {}

// noRateLimit lets jobs begin at any time.
type noRateLimit struct{}

// IsLimited tells that there is no limit.
func (noRateLimit) IsLimited() bool { return false }

// Reserve returns times that are past.
func (noRateLimit) Reserve(_ context.Context, number int) ([]time.Time, error) {
	return make([]time.Time, number), nil
}

// Stop ends it.
func (noRateLimit) Stop() {}
