package worker

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// withTimeout sets the shortest timeout, and retries fast.
func withTimeout(c *Config) {
	withFastRetries(c)
	c.Queues[0].JobTimeout = Duration(broker.MinJobTimeout)
}

// waitForContext returns when the context ends.
func waitForContext(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAMessageWithAnInvalidTimeoutBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, invalid := range []string{"soon", "-1s", "1ms", "25h", ""} {
		env.SendWithHeaders("data", nats.Header{broker.TimeoutHeader: {invalid}})
	}
	w := env.start(env.config(), func(context.Context, *Job) error { return errors.New("the handler was called") })
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	letters := env.DeadLetters()
	const want = `the header Yardmaster-Timeout is "soon", must be a duration from 1s to 24h0m0s, such as 90s`
	if len(letters) != 5 || !slices.ContainsFunc(letters, func(l broker.DeadLetter) bool { return l.Error == want }) {
		t.Errorf("dead letters %+v", letters)
	}
}

func TestTheJobOfAHandlerThatHangsGoesToAnotherWorker(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	config := env.config(withTimeout, func(c *Config) {
		c.Concurrency, c.Queues[0].Lease = 1, Duration(broker.MinLease)
	})
	hangs, ends := make(chan struct{}, 1), make(chan struct{})
	hanging := env.start(config, func(context.Context, *Job) error {
		hangs <- struct{}{}
		<-ends
		return nil
	})
	sentTime := time.Now()
	env.Send("x")
	<-hangs
	isAlive := func() bool { return callAdmin(t, hanging.Worker, http.MethodGet, "/livez", nil).Code == http.StatusOK }
	require.True(t, isAlive() || time.Since(sentTime) >= broker.MinJobTimeout, "the worker is not alive before the timeout")
	var second jobLog
	other := env.start(config, second.handle)
	poll.Until(t, "the other worker to do the job", func() bool { return second.count() == 1 && env.IsEmpty() })
	require.True(t, !isAlive() && hanging.Stats().Overdue == 1, "the worker is alive although all of its slots hang: %+v", hanging.Stats())
	close(ends)
	poll.Until(t, "the worker to be alive again", isAlive)
	requireCleanShutdown(t, hanging, other)
}
