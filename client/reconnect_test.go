package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// A server ends a connection for good when its client sends a message beyond a limit that was lowered meanwhile.
func TestTheClientConnectsAgainAfterTheServerEndedTheConnection(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	const limit = 64 << 10
	lowered := env.Server.Options().Clone()
	lowered.MaxPayload = limit
	require.NoError(t, env.Server.ReloadOptions(lowered))
	large := make([]byte, 2*limit)
	_, err := env.Enqueue(t.Context(), "orders", large)
	requireError(t, err, ErrUnavailable, "")
	require.True(t, IsRetryable(err) && strings.Contains(err.Error(), "Maximum Payload Violation"), "%v", err)
	calls := make(chan error)
	for i := range 5 {
		go func() {
			_, err := env.Enqueue(t.Context(), "orders", nil, ID(fmt.Sprint(i)))
			calls <- err
		}()
	}
	for range 5 {
		require.NoError(t, <-calls)
	}
	_, err = env.Enqueue(t.Context(), "orders", large) // a new connection has the new limit
	requireError(t, err, ErrPayloadTooLarge, "payload")
	poll.Until(t, "the queue to have all jobs", func() bool { return env.Stats().Ready == 5 })
	require.NoError(t, env.Close(t.Context()))
	_, err = env.Enqueue(t.Context(), "orders", nil)
	requireError(t, err, ErrClosed, "")
}

// The client library would keep the messages of calls that fail, and send all of them once it has reconnected.
func TestJobsThatFailWithoutAConnectionAreNotSentLater(t *testing.T) {
	t.Parallel()
	login := func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "a"}, {Username: "producer", Password: "p"}}
	}
	revoke := func(s *natstest.Server) error {
		revoked := s.Options().Clone()
		revoked.Users = revoked.Users[:1]
		return s.ReloadOptions(revoked)
	}
	for title, row := range map[string]struct {
		takeAway, giveBack func(*natstest.Server) error
		want               error
	}{
		"the server is away": {
			func(s *natstest.Server) error { s.Stop(); return nil }, func(s *natstest.Server) error { s.Restart(); return nil }, ErrUnavailable,
		},
		"the login is revoked": {revoke, func(s *natstest.Server) error { return s.ReloadOptions(s.Options().Clone()) }, ErrUnauthorized},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t, login)
			env := &testEnv{t: t, Queue: &queuetest.Queue{Engine: queuetest.Connect(t, dial.NATSEngine, "nats://admin:a@"+s.Address())}}
			queuetest.Ensure(t, env.Engine, "orders")
			env.Client = env.connect(Options{Broker: BrokerConfig{URL: "nats://producer:p@" + s.Address()}, Timeout: testTimeout})
			require.NoError(t, row.takeAway(s))
			enqueueWithin := func(duration time.Duration, payload string) error {
				ctx, cancel := context.WithTimeout(t.Context(), duration)
				defer cancel()
				_, err := env.Enqueue(ctx, "orders", []byte(payload))
				return err
			}
			poll.Until(t, "the client to report the cause", func() bool {
				err := enqueueWithin(50*time.Millisecond, "before")
				return errors.Is(err, row.want) && strings.Contains(err.Error(), "disconnected")
			})
			for range 10 {
				one := enqueueWithin(10*time.Millisecond, "failed")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				_, many := env.EnqueueMany(ctx, "orders", batchOf("failed"))
				cancel()
				require.True(t, one != nil && many != nil, "a job was sent without a connection")
			}
			require.NoError(t, row.giveBack(s))
			env.enqueue("last") // waits for the connection
			next := env.consume("default")
			for {
				switch payload := string(next().Payload); payload {
				case "last":
					return
				case "failed":
					t.Error("a job that failed was sent later")
				}
			}
		})
	}
}

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
	stream := require.Call(cluster.Servers[0].JetStream().Stream(t.Context(), "yardmaster_orders")).Succeeds(t)
	cluster.Named(stream.CachedInfo().Cluster.Leader).Stop()
}

func TestLimitsOfARedisServerAreClassified(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.AsynqEngine)
	env.redis.RunCLI("CONFIG", "SET", "proto-max-bulk-len", "1mb")
	_, err := env.Enqueue(t.Context(), "orders", make([]byte, 2<<20))
	requireError(t, err, ErrPayloadTooLarge, "payload")
	results, _ := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(make([]byte, 2<<20)), NewJob(nil)})
	requireError(t, results[0].Err, ErrPayloadTooLarge, "payload")
	require.NoError(t, results[1].Err)
	env.redis.RunCLI("CONFIG", "SET", "maxmemory", "1")
	_, err = env.Enqueue(t.Context(), "orders", nil)
	requireError(t, err, ErrUnavailable, "")
	env.redis.RunCLI("CONFIG", "SET", "maxmemory", "0")
	env.enqueue("x")
}
