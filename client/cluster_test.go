package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestRetriedJobsAreStoredOnceWhileTheLeaderOfTheStreamIsLost(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	env := &testEnv{t: t, engine: dial.NATSEngine, options: Options{Broker: BrokerConfig{URL: cluster.URL()}, Timeout: 2 * time.Second}}
	env.connectAdmin(cluster.URL())
	env.ensureQueue("orders")
	c := env.connect(env.options)
	const jobs = 600
	for i := range jobs {
		if i == jobs/3 {
			env.stopLeader(cluster)
		}
		id := ID(fmt.Sprintf("order-%d", i))
		poll.Until(t, "the job to be stored", func() bool {
			_, err := c.Enqueue(t.Context(), "orders", nil, id)
			require.True(t, err == nil || IsRetryable(err), "job %d: %v", i, err)
			return err == nil
		})
	}
	poll.Until(t, "the queue to have each job once", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		stats, err := env.admin.Stats(ctx, "orders")
		return err == nil && stats.Ready+stats.Delayed == jobs
	})
}

// stopLeader stops the server that leads the stream of the queue "orders".
func (env *testEnv) stopLeader(cluster *natstest.Cluster) {
	env.t.Helper()
	nc, err := nats.Connect(cluster.URL(), nats.Timeout(testTimeout))
	require.NoError(env.t, err)
	defer nc.Close()
	js, err := natsjs.New(nc, natsjs.WithDefaultTimeout(testTimeout))
	require.NoError(env.t, err)
	stream, err := js.Stream(env.t.Context(), "yardmaster_orders")
	require.NoError(env.t, err)
	cluster.Named(stream.CachedInfo().Cluster.Leader).Stop()
}
