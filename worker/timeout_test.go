package worker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
)

// withTimeout sets the shortest timeout, and retries fast.
func withTimeout(c *Config) {
	withFastRetries(c)
	c.Queues[0].JobTimeout = Duration(broker.MinJobTimeout)
}

// sendWithTimeout sends a job whose header replaces the timeout of the queue.
func (env *testEnv) sendWithTimeout(header, timeout string) {
	env.t.Helper()
	message := &nats.Msg{Subject: "yardmaster.orders.ready.default", Data: []byte("x"), Header: nats.Header{header: {timeout}}}
	if _, err := env.js.PublishMsg(env.t.Context(), message); err != nil {
		env.t.Fatal(err)
	}
}

// waitForContext returns when the context ends.
func waitForContext(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAMessageReplacesTheTimeoutOfItsQueue(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		header, value string
		queue         Duration
		want          time.Duration
	}{
		"by a longer one":                   {broker.TimeoutHeader, "3s", Duration(time.Second), 3 * time.Second},
		"where the queue has none":          {broker.TimeoutHeader, "1s", 0, time.Second},
		"with another spelling of its name": {strings.ToLower(broker.TimeoutHeader), "1s", 0, time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t)
			sentTime := time.Now()
			env.sendWithTimeout(row.header, row.value)
			var deadline, startTime time.Time
			w := env.start(env.config(withTimeout, func(c *Config) { c.Queues[0].JobTimeout = row.queue }), func(ctx context.Context, _ *Job) error {
				deadline, _ = ctx.Deadline()
				startTime = time.Now()
				return nil
			})
			poll.Until(t, "the job to be done", env.isEmpty)
			requireCleanShutdown(t, w)
			if deadline.Before(sentTime.Add(row.want)) || deadline.After(startTime.Add(row.want)) {
				t.Errorf("the handler had %s, want %s", deadline.Sub(startTime), row.want)
			}
		})
	}
}

func TestAMessageWithAnInvalidTimeoutBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	for _, invalid := range []string{"soon", "-1s", "1ms", "25h", ""} {
		env.sendWithTimeout(broker.TimeoutHeader, invalid)
	}
	w := env.start(env.config(), func(context.Context, *Job) error { return errors.New("the handler was called") })
	poll.Until(t, "the jobs to be settled", env.isEmpty)
	requireCleanShutdown(t, w)
	letters := env.deadLetters()
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
	env.send("default", "x")
	<-hangs
	isAlive := func() bool {
		response := httptest.NewRecorder()
		hanging.AdminHandler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", http.NoBody))
		return response.Code == http.StatusOK
	}
	if !isAlive() && time.Since(sentTime) < broker.MinJobTimeout {
		t.Error("the worker is not alive before the timeout")
	}
	var second jobLog
	other := env.start(config, second.handle)
	poll.Until(t, "the other worker to do the job", func() bool { return second.count() == 1 && env.isEmpty() })
	if isAlive() || hanging.Stats().Overdue != 1 {
		t.Errorf("the worker is alive although all of its slots hang: %+v", hanging.Stats())
	}
	close(ends)
	poll.Until(t, "the worker to be alive again", isAlive)
	requireCleanShutdown(t, hanging, other)
}

func TestADrainDoesNotWaitForAHandlerThatIgnoresItsTimeout(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	hangs, ends := make(chan struct{}, 1), make(chan struct{})
	defer close(ends)
	w := env.start(env.config(withTimeout), func(context.Context, *Job) error {
		hangs <- struct{}{}
		<-ends
		return nil
	})
	sentTime := time.Now()
	env.send("default", "x")
	<-hangs
	w.Drain()
	if s := w.Stats(); (s.State != StateDraining || s.InFlight != 1) && time.Since(sentTime) < broker.MinJobTimeout {
		t.Errorf("stats before the timeout: %+v", s)
	}
	poll.Until(t, "the worker to be drained", func() bool { return w.Stats().State == StateDrained })
	if s := w.Stats(); s.InFlight != 0 || s.Overdue != 1 {
		t.Errorf("stats after the timeout: %+v", s)
	}
	requireCleanShutdown(t, w)
}
