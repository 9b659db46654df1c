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
	"github.com/yardmaster/yardmaster/test/require"
)

// A server ends a connection for good when its client sends a message beyond a limit that was lowered meanwhile.
func TestTheClientConnectsAgainAfterTheServerEndedTheConnection(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.NATSEngine)
	const limit = 64 << 10
	lowered := env.server.Options().Clone()
	lowered.MaxPayload = limit
	require.NoError(t, env.server.ReloadOptions(lowered))
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
	poll.Until(t, "the queue to have all jobs", func() bool { return env.stats().Ready == 5 })
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
	for title, row := range map[string]struct {
		takeAway, giveBack func(*testing.T, *natstest.Server)
		want               error
	}{
		"the server is away": {
			takeAway: func(_ *testing.T, s *natstest.Server) { s.Stop() },
			giveBack: func(_ *testing.T, s *natstest.Server) { s.Restart() },
			want:     ErrUnavailable,
		},
		"the login is revoked": {
			takeAway: func(t *testing.T, s *natstest.Server) {
				revoked := s.Options().Clone()
				revoked.Users = revoked.Users[:1]
				require.NoError(t, s.ReloadOptions(revoked))
			},
			giveBack: func(t *testing.T, s *natstest.Server) {
				require.NoError(t, s.ReloadOptions(s.Options().Clone()))
			},
			want: ErrUnauthorized,
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t, login)
			env := &testEnv{t: t, engine: dial.NATSEngine, server: s}
			env.connectAdmin("nats://admin:a@" + s.Address())
			env.ensureQueue("orders")
			env.Client = env.connect(Options{Broker: BrokerConfig{URL: "nats://producer:p@" + s.Address()}, Timeout: testTimeout})
			row.takeAway(t, s)
			within := func(duration time.Duration, call func(context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), duration)
				defer cancel()
				return call(ctx)
			}
			poll.Until(t, "the client to report the cause", func() bool {
				err := within(50*time.Millisecond, func(ctx context.Context) error {
					_, err := env.Enqueue(ctx, "orders", []byte("before"))
					return err
				})
				return errors.Is(err, row.want) && strings.Contains(err.Error(), "disconnected")
			})
			for range 10 {
				one := within(10*time.Millisecond, func(ctx context.Context) error {
					_, err := env.Enqueue(ctx, "orders", []byte("failed"))
					return err
				})
				many := within(10*time.Millisecond, func(ctx context.Context) error {
					_, err := env.EnqueueMany(ctx, "orders", []Job{NewJob([]byte("failed"))})
					return err
				})
				require.True(t, one != nil && many != nil, "a job was sent without a connection")
			}
			row.giveBack(t, s)
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
