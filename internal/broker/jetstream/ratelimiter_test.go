package jetstream

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/clock"
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
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue())
	l := openRateLimiter(t, e)
	slots, err := l.Reserve(t.Context(), 1000)
	if l.IsLimited() || err != nil || len(slots) != 1000 || slots[999].After(time.Now()) {
		t.Errorf("%d slots: %v", len(slots), err)
	}
}

// Ten workers with separate connections reserve as many slots as they can.
func TestWorkersShareOneRateLimit(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(withRateLimit(500, 1)))
	var (
		mu    sync.Mutex
		slots []time.Time
		group sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for range 10 {
		l := openRateLimiter(t, e)
		group.Go(func() {
			for {
				some, err := l.Reserve(ctx, 5)
				if err != nil {
					return // the test's time is over
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
	const window = 2 * time.Second
	windowStart := slots[0].Add(500 * time.Millisecond)
	n := 0
	for _, slot := range slots {
		if !slot.Before(windowStart) && slot.Before(windowStart.Add(window)) {
			n++
		}
	}
	if n == 0 || n > 1050 { // a busy machine starts fewer
		t.Errorf("%d jobs start within %s, the limit is 1000", n, window)
	}
}

func TestChangedRateLimitAppliesImmediately(t *testing.T) {
	e := startEngine(t)
	ensureQueue(t, e, ordersQueue(func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Hour, Burst: 1} }))
	l := openRateLimiter(t, e)
	if _, err := l.Reserve(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ensureQueue(t, e, ordersQueue(withRateLimit(1000, 1)))
	eventually(t, "the new limit is known", func() bool { return l.(*rateLimiter).currentLimit.Load().Limit == 1000 })
	if _, err := l.Reserve(t.Context(), 1); err != nil || time.Since(start) > 10*time.Minute {
		t.Errorf("the next job starts after %s: %v", time.Since(start), err)
	}
	ensureQueue(t, e, ordersQueue())
	eventually(t, "there is no limit", func() bool { return !l.IsLimited() })
}

func TestInvalidBucketContentIsIgnored(t *testing.T) {
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
