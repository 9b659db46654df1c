package jetstream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func withResults(retention time.Duration) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.Results = broker.ResultsConfig{Retention: retention, MaxBytes: broker.DefaultResultsBytes}
	}
}

func TestTheBucketWithStatesIsCreatedCorrectedAndDeletedWithTheField(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	ensure := func(changes ...func(*broker.QueueConfig)) broker.EnsureResult {
		t.Helper()
		return ensureQueue(t, e, ordersQueue(changes...))
	}
	bucket := func() *jetstream.StreamConfig {
		stream, err := e.js.Stream(t.Context(), "KV_yardmaster_orders_jobs")
		if err != nil {
			return nil
		}
		return &stream.CachedInfo().Config
	}
	ensure()
	require.True(t, bucket() == nil, "a queue without the field has a bucket")
	ensure(withResults(time.Hour))
	config := bucket()
	require.True(t, config != nil && config.MaxBytes == broker.DefaultResultsBytes && config.Discard == jetstream.DiscardOld, "%+v", config)
	require.Equal(t, time.Hour, config.MaxAge)
	_, err := e.js.KeyValue(t.Context(), "yardmaster_orders_jobs")
	require.NoError(t, err)
	changeStream(t, e, "KV_yardmaster_orders_jobs", func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Minute })
	result := ensure(withResults(time.Hour))
	require.True(t, len(result.Drift) == 1 && result.Corrected && bucket().MaxAge == time.Hour, "drift %v", result.Drift)
	require.Contains(t, result.Drift[0].String(), "max_age is 2m0s, should be 1h0m0s")
	ensure(withResults(2 * time.Hour))
	require.True(t, bucket().MaxAge == 2*time.Hour, "the retention has not changed")
	ensure()
	require.True(t, bucket() == nil, "the bucket exists without the field")
	q := ordersQueue(withResults(time.Hour))
	ensure(withResults(time.Hour))
	err = e.DeleteQueue(t.Context(), "orders", q.Owner)
	require.True(t, err == nil && bucket() == nil, "the bucket of a deleted queue exists: %v", err)
}

func TestAQueueWithoutStatesHasTheHashOfBefore(t *testing.T) {
	t.Parallel()
	q := ordersQueue()
	with := ordersQueue(withResults(time.Hour))
	require.True(t, broker.HashConfig(q.WithoutOwner()) != broker.HashConfig(with.WithoutOwner()), "the field does not change the hash")
	raw, err := json.Marshal(q.WithoutOwner())
	require.True(t, err == nil && !strings.Contains(string(raw), "Results"), "an upgrade would change each queue: %s", raw)
}

func TestKeysOfJobsAreTokens(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"17": "17", "a-B_9": "a-B_9", "a.b": "=YS5i", "": "=", "ö": "=w7Y", "=": "=PQ"} {
		token := keyToken(id)
		require.True(t, token == want, "%q is %q, want %q", id, token, want)
		back, valid := idFromToken(token)
		require.True(t, id == "" || back == id && valid, "%q is %q again", id, back)
	}
}
