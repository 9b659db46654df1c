package asynq

import (
	"context"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// origin is a queue as its workers see it.
type origin struct {
	*Engine
	queue string

	mu sync.Mutex
	// first priority that was asked for; empty: none was.
	first string
}

// Subscribe is where a worker gets the queue's messages from.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	if err := e.exists(ctx, queue); err != nil {
		return nil, redisclient.ClassifyError("looking for the queue "+queue, err)
	}
	return &origin{Engine: e, queue: queue}, nil
}

// Consumer leads to the messages of one priority. asynq has none, so the first that is asked
// for, the most urgent, has all messages, and the others have none.
func (o *origin) Consumer(_ context.Context, priority string) (broker.Consumer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == "" {
		o.first = priority
	}
	if o.first != priority {
		return deadEnd{}, nil
	}
	return o.newLane(o.queue, priority)
}

// RateLimiter is none: asynq knows of no limit.
func (*origin) RateLimiter(context.Context) (broker.RateLimiter, error) { return unlimited{}, nil }

// deadEnd is a lane with no messages.
type deadEnd struct{}

// Fetch has nothing to hand out.
func (deadEnd) Fetch(context.Context, int, func(broker.Delivery)) (int, error) { return 0, nil }

// Next waits in vain.
func (deadEnd) Next(ctx context.Context, wait time.Duration, _ func(broker.Delivery)) (int, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return 0, nil
}

// Stop ends it.
func (deadEnd) Stop() {}

// unlimited lets jobs begin at any time.
type unlimited struct{}

// IsLimited tells that there is no limit.
func (unlimited) IsLimited() bool { return false }

// Reserve returns times that are past.
func (unlimited) Reserve(_ context.Context, number int) ([]time.Time, error) {
	return make([]time.Time, number), nil
}

// Stop ends it.
func (unlimited) Stop() {}
