package client

import (
	"context"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func (env *testEnv) cancel(id string) bool {
	env.t.Helper()
	canceled, err := env.CancelDelayed(env.t.Context(), "orders", id)
	require.NoError(env.t, err)
	return canceled
}

func TestOnlyDelayedJobsAreCanceled(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.enqueue("canceled", ID("a.b/c"), Delay(time.Hour))
		require.True(t, env.cancel("a.b/c"), "the job was not canceled")
		require.True(t, !env.cancel("a.b/c"), "the job was canceled twice")
		env.enqueue("ready", ID("a"))
		env.enqueue("due", ID("b"), Delay(time.Second))
		ids := []string{"a", "b", "never-sent"}
		if env.engine == dial.AsynqEngine {
			ids = []string{"a", "never-sent"} // the second job becomes ready only while a worker runs
		} else {
			poll.Until(t, "the second job to be due", func() bool { return env.Stats().Delayed == 0 })
		}
		for _, id := range ids {
			require.True(t, !env.cancel(id), "%s was canceled", id)
		}
		require.Equal(t, 2, env.Left()) // not the job that was canceled
		_, err := env.CancelDelayed(t.Context(), "nobody", "a")
		requireError(t, err, ErrUnknownQueue, "queue")
		_, err = env.CancelDelayed(t.Context(), "orders", "a b")
		requireError(t, err, ErrInvalid, "id")
		_, err = env.CancelDelayed(t.Context(), "*", "a")
		requireError(t, err, ErrInvalid, "queue")
		env.stop()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = env.CancelDelayed(ctx, "orders", "a")
		requireError(t, err, ErrUnavailable, "")
	})
}
