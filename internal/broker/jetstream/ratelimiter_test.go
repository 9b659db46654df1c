package jetstream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/poll"
)

func withRateLimit(perSecond, burst int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: burst}
	}
}

func openRateLimiter(t *testing.T, e *Engine) broker.RateLimiter {
	t.Helper()
	source, err := e.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	l, err := source.RateLimiter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

func TestWithoutRateLimitJobsStartImmediately(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue())
	l := openRateLimiter(t, e)
	slots, err := l.Reserve(t.Context(), 1000)
	if l.IsLimited() || err != nil || len(slots) != 1000 || slots[999].After(time.Now()) {
		t.Errorf("%d slots: %v", len(slots), err)
	}
}

// Ten workers with separate connections reserve as many slots as they can. A worker that has to wait for a processor
// while it measures its clock takes slots of a wrong time, so the test measures until the machine is not busy.
func TestWorkersShareOneRateLimit(t *testing.T) {
	t.Parallel()
	err := poll.UntilNil(t.Context(), func() error {
		const window = 2 * time.Second
		slots := reserveSlotsOfTenWorkers(t, 3*time.Second)
		n := 0
		for _, slot := range slots {
			windowStart := slots[0].Add(500 * time.Millisecond)
			if !slot.Before(windowStart) && slot.Before(windowStart.Add(window)) {
				n++
			}
		}
		if n == 0 || n > 1050 { // a busy machine starts fewer
			return fmt.Errorf("%d jobs start within %s, the limit is 1000", n, window)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// reserveSlotsOfTenWorkers returns the slots in their order.
func reserveSlotsOfTenWorkers(t *testing.T, duration time.Duration) (slots []time.Time) {
	t.Helper()
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(withRateLimit(500, 1)))
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	for range 10 {
		l := openRateLimiter(t, e)
		group.Go(func() {
			for {
				some, err := l.Reserve(ctx, 5)
				if err != nil {
					return // the time is over
				}
				mu.Lock()
				slots = append(slots, some...)
				mu.Unlock()
				if clock.SleepContext(ctx, time.Until(some[len(some)-1])) != nil {
					return
				}
			}
		})
	}
	group.Wait()
	slices.SortFunc(slots, time.Time.Compare)
	return slots
}

func TestChangedRateLimitAppliesImmediately(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Hour, Burst: 1} }))
	l := openRateLimiter(t, e)
	if _, err := l.Reserve(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ensureQueue(t, e, ordersQueue(withRateLimit(1000, 1)))
	poll.Until(t, "the new limit to be known", func() bool { return l.(*rateLimiter).currentLimit.Load().Limit == 1000 })
	if _, err := l.Reserve(t.Context(), 1); err != nil || time.Since(start) > 10*time.Minute {
		t.Errorf("the next job starts after %s: %v", time.Since(start), err)
	}
	ensureQueue(t, e, ordersQueue())
	poll.Until(t, "the limit to be removed", func() bool { return !l.IsLimited() })
}

func TestInvalidBucketContentIsIgnored(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(withRateLimit(100, 1)))
	bucket, err := e.js.KeyValue(t.Context(), bucketName("orders"))
	if err != nil {
		t.Fatal(err)
	}
	l := openRateLimiter(t, e)
	for _, text := range []string{"x", `{"next":"9999-01-01T00:00:00Z"}`, "null"} {
		if _, err := bucket.PutString(t.Context(), rateStateKey, text); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := l.Reserve(t.Context(), 1); err != nil || time.Since(start) > time.Minute {
			t.Errorf("%s: the next job starts after %s: %v", text, time.Since(start), err)
		}
	}
	if _, err := bucket.PutString(t.Context(), rateLimitKey, `{"limit":-5}`); err != nil {
		t.Fatal(err)
	}
	if slots, err := l.Reserve(t.Context(), 1); err != nil || len(slots) != 1 {
		t.Errorf("%v: %v", slots, err)
	}
}
