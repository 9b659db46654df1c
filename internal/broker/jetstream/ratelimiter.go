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
)

// rateLimiter keeps the workers of a queue to its rate limit. The bucket holds how much of
// the limit's time is taken; a worker takes more of it by a write that fails if another
// wrote meanwhile. So the limit holds for any number of workers that know nothing of each
// other, and a change of it, which the bucket tells all of them, holds from then on.
type rateLimiter struct {
	*queueSubscription
	watcher      jetstream.KeyWatcher
	currentLimit atomic.Pointer[rateLimitRecord]
	done         chan struct{}
	stop         context.CancelFunc

	// mu lets one Reserve at a time write.
	mu sync.Mutex
	// clockOffset is how far the broker's clock is before this machine's, as of measured.
	clockOffset       time.Duration
	clockMeasuredTime time.Time
}

// RateLimiter keeps all workers of the queue to its rate limit.
func (s *queueSubscription) RateLimiter(ctx context.Context) (broker.RateLimiter, error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := s.bucket.Watch(watching, rateLimitKey)
	if err != nil {
		stop()
		return nil, s.classifyError("watching the rate limit of the queue "+s.queue, err)
	}
	l := &rateLimiter{queueSubscription: s, watcher: watcher, done: make(chan struct{}), stop: stop}
	known := make(chan struct{})
	go l.watchRateLimit(known)
	select {
	case <-known:
		return l, nil
	case <-ctx.Done():
		l.Stop()
		return nil, s.classifyError("watching the rate limit of the queue "+s.queue, ctx.Err())
	}
}

// watchRateLimit follows the limit. It tells when the one that holds at first is known.
func (l *rateLimiter) watchRateLimit(known chan<- struct{}) {
	defer close(l.done)
	for entry := range l.watcher.Updates() {
		if entry == nil { // the end of what was there at first
			close(known)
			continue
		}
		var now rateLimitRecord
		if entry.Operation() == jetstream.KeyValuePut {
			if err := json.Unmarshal(entry.Value(), &now); err != nil || now.Limit < 0 || now.Limit > 0 && now.Per <= 0 {
				continue // not ours: what held goes on to hold
			}
		}
		l.currentLimit.Store(&now)
	}
}

// Stop ends it.
func (l *rateLimiter) Stop() {
	_ = l.watcher.Stop()
	l.stop()
	<-l.done
}

// IsLimited tells whether there is a limit at this time.
func (l *rateLimiter) IsLimited() bool {
	now := l.currentLimit.Load()
	return now != nil && now.Limit > 0
}

// Reserve waits until at least one job may be given a time to begin at.
func (l *rateLimiter) Reserve(ctx context.Context, number int) ([]time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots, err := l.reserveSlots(ctx, number)
	return slots, l.classifyError("keeping to the rate limit of the queue "+l.queue, err)
}

func (l *rateLimiter) reserveSlots(ctx context.Context, number int) ([]time.Time, error) {
	for {
		asked := l.currentLimit.Load()
		if asked == nil || asked.Limit == 0 {
			return make([]time.Time, number), nil
		}
		if err := l.measureClockOffset(ctx); err != nil {
			return nil, err
		}
		line := rate.RateLimit{Interval: asked.Per / time.Duration(asked.Limit), Burst: max(asked.Burst, 1)}
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
		// Spread out, lest all who wait write at once; and look again soon, in case the limit
		// has changed.
		wait := time.Until(grant.RetryTime.Add(-l.clockOffset)) + rand.N(rate.SlotLeadTime/4) //nolint:gosec // to spread, not to hide
		if err := sleepContext(ctx, min(max(wait, time.Millisecond), time.Second)); err != nil {
			return nil, err
		}
	}
}

// takeSlots takes slots from what all workers share. A write that another came before is
// tried anew with what that one left.
func (l *rateLimiter) takeSlots(ctx context.Context, line rate.RateLimit, number int) (rate.SlotGrant, error) {
	for {
		var state rate.SharedState
		entry, err := l.bucket.Get(ctx, rateStateKey)
		if err != nil && !isNotFound(err) {
			return rate.SlotGrant{}, err
		}
		var revision uint64
		if entry != nil {
			revision = entry.Revision()
			// What is not a state is taken for none: nothing was taken.
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
		err = l.writeState(ctx, raw, revision)
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return grant, err
		}
		if err := ctx.Err(); err != nil {
			return rate.SlotGrant{}, err
		}
	}
}

// writeState fails if the key is not of that revision; 0: not there.
func (l *rateLimiter) writeState(ctx context.Context, raw []byte, revision uint64) error {
	if revision == 0 {
		_, err := l.bucket.Create(ctx, rateStateKey, raw)
		return err
	}
	_, err := l.bucket.Update(ctx, rateStateKey, raw, revision)
	return err
}

// clockOffsetMaxAge is how long a measurement of the broker's clock is good for.
const clockOffsetMaxAge = 30 * time.Second

// measureClockOffset finds how far the broker's clock is ahead of this machine's: workers whose
// clocks differ must mean the same by a slot's time.
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

// sleepContext waits that long, or until ctx ends.
func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
