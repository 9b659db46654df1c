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

// limiter keeps the workers of a queue to its rate limit. The bucket holds how much of
// the limit's time is taken; a worker takes more of it by a write that fails if another
// wrote meanwhile. So the limit holds for any number of workers that know nothing of each
// other, and a change of it, which the bucket tells all of them, holds from then on.
type limiter struct {
	*workQueue
	watcher jetstream.KeyWatcher
	limit   atomic.Pointer[limit]
	done    chan struct{}
	stop    context.CancelFunc

	// mu lets one Reserve at a time write.
	mu sync.Mutex
	// ahead is how far the broker's clock is before this machine's, as of measured.
	ahead    time.Duration
	measured time.Time
}

// RateLimiter keeps all workers of the queue to its rate limit.
func (s *workQueue) RateLimiter(ctx context.Context) (broker.RateLimiter, error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := s.bucket.Watch(watching, limitKey)
	if err != nil {
		stop()
		return nil, s.classify("watching the rate limit of the queue "+s.queue, err)
	}
	l := &limiter{workQueue: s, watcher: watcher, done: make(chan struct{}), stop: stop}
	known := make(chan struct{})
	go l.watch(known)
	select {
	case <-known:
		return l, nil
	case <-ctx.Done():
		l.Stop()
		return nil, s.classify("watching the rate limit of the queue "+s.queue, ctx.Err())
	}
}

// watch follows the limit. It tells when the one that holds at first is known.
func (l *limiter) watch(known chan<- struct{}) {
	defer close(l.done)
	for entry := range l.watcher.Updates() {
		if entry == nil { // the end of what was there at first
			close(known)
			continue
		}
		var now limit
		if entry.Operation() == jetstream.KeyValuePut {
			if err := json.Unmarshal(entry.Value(), &now); err != nil || now.Limit < 0 || now.Limit > 0 && now.Per <= 0 {
				continue // not ours: what held goes on to hold
			}
		}
		l.limit.Store(&now)
	}
}

// Stop ends it.
func (l *limiter) Stop() {
	_ = l.watcher.Stop()
	l.stop()
	<-l.done
}

// IsLimited tells whether there is a limit at this time.
func (l *limiter) IsLimited() bool {
	now := l.limit.Load()
	return now != nil && now.Limit > 0
}

// Reserve waits until at least one job may be given a time to begin at.
func (l *limiter) Reserve(ctx context.Context, number int) ([]time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots, err := l.reserve(ctx, number)
	return slots, l.classify("keeping to the rate limit of the queue "+l.queue, err)
}

func (l *limiter) reserve(ctx context.Context, number int) ([]time.Time, error) {
	for {
		asked := l.limit.Load()
		if asked == nil || asked.Limit == 0 {
			return make([]time.Time, number), nil
		}
		if err := l.measure(ctx); err != nil {
			return nil, err
		}
		line := rate.Limit{Interval: asked.Per / time.Duration(asked.Limit), Burst: max(asked.Burst, 1)}
		grant, err := l.take(ctx, line, number)
		if err != nil {
			return nil, err
		}
		if len(grant.Slots) > 0 {
			for i := range grant.Slots {
				grant.Slots[i] = grant.Slots[i].Add(-l.ahead)
			}
			return grant.Slots, nil
		}
		// Spread out, lest all who wait write at once; and look again soon, in case the limit
		// has changed.
		wait := time.Until(grant.Again.Add(-l.ahead)) + rand.N(rate.Lead/4) //nolint:gosec // to spread, not to hide
		if err := sleep(ctx, min(max(wait, time.Millisecond), time.Second)); err != nil {
			return nil, err
		}
	}
}

// take takes slots from what all workers share. A write that another came before is
// tried anew with what that one left.
func (l *limiter) take(ctx context.Context, line rate.Limit, number int) (rate.Grant, error) {
	for {
		var state rate.State
		entry, err := l.bucket.Get(ctx, rateKey)
		if err != nil && !missing(err) {
			return rate.Grant{}, err
		}
		var revision uint64
		if entry != nil {
			revision = entry.Revision()
			// What is not a state is taken for none: nothing was taken.
			_ = json.Unmarshal(entry.Value(), &state)
		}
		grant := line.Take(state, time.Now().Add(l.ahead), min(number, line.Batch()))
		if len(grant.Slots) == 0 && grant.State.Next.Equal(state.Next) {
			return grant, nil
		}
		raw, err := json.Marshal(grant.State)
		if err != nil {
			return rate.Grant{}, err
		}
		err = l.write(ctx, raw, revision)
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return grant, err
		}
		if err := ctx.Err(); err != nil {
			return rate.Grant{}, err
		}
	}
}

// write fails if the key is not of that revision; 0: not there.
func (l *limiter) write(ctx context.Context, raw []byte, revision uint64) error {
	if revision == 0 {
		_, err := l.bucket.Create(ctx, rateKey, raw)
		return err
	}
	_, err := l.bucket.Update(ctx, rateKey, raw, revision)
	return err
}

// remeasured is how long a measurement of the broker's clock is good for.
const remeasured = 30 * time.Second

// measure finds how far the broker's clock is ahead of this machine's: workers whose
// clocks differ must mean the same by a slot's time.
func (l *limiter) measure(ctx context.Context) error {
	sent := time.Now()
	if !l.measured.IsZero() && sent.Sub(l.measured) < remeasured {
		return nil
	}
	info, err := l.stream.Info(ctx)
	if err != nil {
		return err
	}
	received := time.Now()
	l.ahead, l.measured = info.TimeStamp.Sub(sent.Add(received.Sub(sent)/2)), received
	return nil
}

// sleep waits that long, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
