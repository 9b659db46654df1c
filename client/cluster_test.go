package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestRetriedJobsAreStoredOnceWhileTheLeaderOfTheStreamIsLost(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	engine := queuetest.Connect(t, dial.NATSEngine, cluster.URL())
	queuetest.Ensure(t, engine, "orders")
	c := (&testEnv{t: t}).connect(Options{Broker: BrokerConfig{URL: cluster.URL()}, Timeout: 2 * time.Second})
	const jobs = 600
	for i := range jobs {
		if i == jobs/3 {
			stopLeader(t, cluster)
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
		stats, err := engine.Stats(ctx, "orders")
		return err == nil && stats.Ready+stats.Delayed == jobs
	})
}

// stopLeader stops the server that leads the stream of the queue "orders".
func stopLeader(t *testing.T, cluster *natstest.Cluster) {
	t.Helper()
	stream, err := cluster.Servers[0].JetStream().Stream(t.Context(), "yardmaster_orders")
	require.NoError(t, err)
	cluster.Named(stream.CachedInfo().Cluster.Leader).Stop()
}
