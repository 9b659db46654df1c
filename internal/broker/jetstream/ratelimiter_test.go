package jetstream

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func withRateLimit(perSecond, burst int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: burst}
	}
}

func openRateLimiter(t *testing.T, e *Engine) broker.RateLimiter {
	t.Helper()
	source, err := e.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	l, err := source.RateLimiter(t.Context())
	require.NoError(t, err)
	t.Cleanup(l.Stop)
	return l
}

func TestChangedRateLimitAppliesImmediately(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.RateLimit = &broker.RateLimit{Limit: 1, Per: time.Hour, Burst: 1} })
	l := openRateLimiter(t, e)
	_, err := l.Reserve(t.Context(), 1)
	require.NoError(t, err)
	start := time.Now()
	ensureQueue(t, e, ordersQueue(withRateLimit(1000, 1)))
	poll.Until(t, "the new limit to be known", func() bool { return l.(*rateLimiter).currentLimit.Load().Limit == 1000 })
	_, err = l.Reserve(t.Context(), 1)
	require.True(t, err == nil && time.Since(start) <= 10*time.Minute, "the next job starts after %s: %v", time.Since(start), err)
	ensureQueue(t, e, ordersQueue())
	poll.Until(t, "the limit to be removed", func() bool { return !l.IsLimited() })
	slots, err := l.Reserve(t.Context(), 1000)
	require.True(t, err == nil && len(slots) == 1000 && !slots[999].After(time.Now()), "%d slots without a limit: %v", len(slots), err)
}

func TestInvalidBucketContentIsIgnored(t *testing.T) {
	t.Parallel()
	e := startWithQueue(t, withRateLimit(100, 1))
	bucket, err := e.js.KeyValue(t.Context(), bucketName("orders"))
	require.NoError(t, err)
	l := openRateLimiter(t, e)
	for _, text := range []string{"x", `{"next":"9999-01-01T00:00:00Z"}`, "null"} {
		_, err := bucket.PutString(t.Context(), rateStateKey, text)
		require.NoError(t, err)
		start := time.Now()
		_, err = l.Reserve(t.Context(), 1)
		require.True(t, err == nil && time.Since(start) <= time.Minute, "%s: the next job starts after %s: %v", text, time.Since(start), err)
	}
	_, err = bucket.PutString(t.Context(), rateLimitKey, `{"limit":-5}`)
	require.NoError(t, err)
	slots, err := l.Reserve(t.Context(), 1)
	require.True(t, err == nil && len(slots) == 1, "%v: %v", slots, err)
}
