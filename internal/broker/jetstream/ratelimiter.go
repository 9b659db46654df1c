package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/rate"
	"github.com/yardmaster/yardmaster/internal/clock"
)

// rateLimiter enforces the rate limit of a queue for any number of workers. The bucket contains the next free slot, and a worker
// takes slots with a compare-and-set. Workers watch the bucket for changes of the limit.
type rateLimiter struct {
	*queueSubscription
	*keyWatch
	currentLimit atomic.Pointer[rateLimitRecord]

	// mu serializes calls of Reserve.
	mu sync.Mutex
	// clockOffset is how far the clock of the server was ahead of this machine at clockMeasuredTime.
	clockOffset       time.Duration
	clockMeasuredTime time.Time
}

// RateLimiter implements broker.Subscription.
func (s *queueSubscription) RateLimiter(ctx context.Context) (_ broker.RateLimiter, err error) {
	l := &rateLimiter{queueSubscription: s}
	l.keyWatch, err = s.watchKeys(ctx, "watching the rate limit of the queue "+s.queue, s.bucket, rateLimitKey, func(entry jetstream.KeyValueEntry) {
		var now rateLimitRecord
		if entry.Operation() == jetstream.KeyValuePut {
			if err := json.Unmarshal(entry.Value(), &now); err != nil || now.Limit < 0 || now.Limit > 0 && now.Per <= 0 {
				return // invalid: keep the previous limit
			}
		}
		l.currentLimit.Store(&now)
	})
	return l, err
}

// IsLimited implements broker.RateLimiter.
func (l *rateLimiter) IsLimited() bool {
	now := l.currentLimit.Load()
	return now != nil && now.Limit > 0
}

// Reserve implements broker.RateLimiter.
func (l *rateLimiter) Reserve(ctx context.Context, number int) (_ []time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { err = l.classifyError("reserving a slot of the rate limit of the queue "+l.queue, err) }()
	for {
		asked := l.currentLimit.Load()
		if asked == nil || asked.Limit == 0 {
			return make([]time.Time, number), nil
		}
		if err := l.measureClockOffset(ctx); err != nil {
			return nil, err
		}
		line := rate.Limit{Interval: asked.Per / time.Duration(asked.Limit), Burst: max(asked.Burst, 1)}
		grant, err := l.takeSlots(ctx, line, number)
		if err != nil {
			return nil, err
		}
		if len(grant.Slots) > 0 {
			for i := range grant.Slots {
				grant.Slots[i] = grant.Slots[i].Add(-l.clockOffset)
			}
			return grant.Slots, nil
		}
		// Jitter avoids simultaneous writes. The wait is bounded, because the limit may change.
		wait := time.Until(grant.RetryTime.Add(-l.clockOffset)) + rand.N(rate.SlotLeadTime/4) //nolint:gosec // to spread, not to hide
		if err := clock.SleepContext(ctx, min(max(wait, time.Millisecond), time.Second)); err != nil {
			return nil, err
		}
	}
}

// takeSlots takes slots from the shared state, and retries after a conflicting write.
func (l *rateLimiter) takeSlots(ctx context.Context, line rate.Limit, number int) (rate.SlotGrant, error) {
	for {
		var state rate.SharedState
		entry, err := l.bucket.Get(ctx, rateStateKey)
		if err != nil && !isNotFound(err) {
			return rate.SlotGrant{}, err
		}
		var revision uint64
		if entry != nil {
			revision = entry.Revision()
			// Content that cannot be decoded counts as an empty state.
			_ = json.Unmarshal(entry.Value(), &state)
		}
		grant := line.TakeSlots(state, time.Now().Add(l.clockOffset), min(number, line.SlotsPerRequest()))
		if len(grant.Slots) == 0 && grant.State.NextSlot.Equal(state.NextSlot) {
			return grant, nil
		}
		raw, err := json.Marshal(grant.State)
		if err != nil {
			return rate.SlotGrant{}, err
		}
		if revision == 0 { // the key must not exist
			_, err = l.bucket.Create(ctx, rateStateKey, raw)
		} else {
			_, err = l.bucket.Update(ctx, rateStateKey, raw, revision)
		}
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return grant, err
		}
		if err := ctx.Err(); err != nil {
			return rate.SlotGrant{}, err
		}
	}
}

const clockOffsetMaxAge = 30 * time.Second

// measureClockOffset measures the offset to the clock of the server, so that workers with different clocks agree on the times of
// slots.
func (l *rateLimiter) measureClockOffset(ctx context.Context) error {
	sent := time.Now()
	if !l.clockMeasuredTime.IsZero() && sent.Sub(l.clockMeasuredTime) < clockOffsetMaxAge {
		return nil
	}
	info, err := l.stream.Info(ctx)
	if err != nil {
		return err
	}
	received := time.Now()
	l.clockOffset, l.clockMeasuredTime = info.TimeStamp.Sub(sent.Add(received.Sub(sent)/2)), received
	return nil
}
