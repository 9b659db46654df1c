package asynq

import (
	"context"
	"sync"

	"github.com/yardmaster/yardmaster/internal/broker"
)

type queueSubscription struct {
	*Engine
	queue string

	mu sync.Mutex
	// servedPriority is the first priority requested.
	servedPriority string
}

// Subscribe implements broker.Engine.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	if err := e.checkQueueExists(ctx, queue); err != nil {
		return nil, queueError("looking for", queue, err)
	}
	return &queueSubscription{Engine: e, queue: queue}, nil
}

// Consumer implements broker.Subscription. asynq has no priorities: the first priority requested, the most urgent, has all
// messages.
func (o *queueSubscription) Consumer(_ context.Context, priority string) (broker.Consumer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.servedPriority == "" {
		o.servedPriority = priority
	}
	if o.servedPriority != priority {
		return nil, nil //nolint:nilnil // nil means that the priority has no messages
	}
	return o.newTaskConsumer(o.queue, priority)
}

// RateLimiter implements broker.Subscription.
func (*queueSubscription) RateLimiter(context.Context) (broker.RateLimiter, error) {
	return nil, nil //nolint:nilnil // nil means that asynq has no rate limit
}
