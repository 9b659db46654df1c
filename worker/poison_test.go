package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The environment of the processes of this test binary that are workers, and kill themselves when they run a job with the payload poison.
const (
	lethalBroker = "YARDMASTER_TEST_BROKER"
	lethalCount  = 2
	poison       = "poison"
	transient    = "fails once"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(lethalBroker); url != "" {
		runLethalWorker(url)
		return
	}
	os.Exit(m.Run())
}

func runLethalWorker(url string) {
	c := Config{Broker: BrokerConfig{URL: url}, Queues: []QueueConfig{{Name: "orders", Lease: Duration(broker.MinLease)}}, AdminAddress: "0"}
	c.Queues[0].Retry = &RetryPolicy{InitialDelay: new(Duration(time.Millisecond)), MaxDelay: new(Duration(time.Millisecond))}
	err := Run(context.Background(), Options{Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, func(_ context.Context, job *Job) error {
		if string(job.Payload) == poison {
			time.Sleep(time.Millisecond << rand.IntN(4))
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		time.Sleep(time.Millisecond << rand.IntN(4))
		if strings.HasPrefix(string(job.Payload), transient) && job.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	fmt.Fprintln(os.Stderr, err)
}

// A message that ends its process is the only one that becomes a dead letter. Its lost deliveries do not use up the attempts of those
// beside it, of which some fail by themselves.
func TestAMessageThatEndsItsProcessBecomesTheOnlyDeadLetter(t *testing.T) {
	t.Parallel()
	rounds := testbuilder.NumberFromEnv(t, "POISON_ROUNDS", 1)
	servers := min(rounds, 4) // a round mostly waits
	for first := range servers {
		t.Run(fmt.Sprintf("from round %d", first), func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t)
			consumer := require.Call(env.JS.Consumer(t.Context(), "yardmaster_orders", broker.DefaultPriority)).Succeeds(t)
			config := consumer.CachedInfo().Config
			config.AckWait = 2500 * time.Millisecond // so that a round is short: the jobs take milliseconds
			require.Call(env.JS.UpdateConsumer(t.Context(), "yardmaster_orders", config)).Succeeds(t)
			for round := first; round < rounds; round += servers {
				env.requireOneDeadLetter(round)
			}
			env.requireNoHistory()
		})
	}
}

func (env *testEnv) requireOneDeadLetter(round int) {
	env.t.Helper()
	payloads := numberedPayloads(1000)
	for i := 0; i < len(payloads); i += 10 {
		payloads[i] = transient + payloads[i]
	}
	payloads[rand.IntN(len(payloads))] = poison
	env.Send(payloads...)
	processes := env.runLethalWorkersUntilEmpty()
	letters := env.DeadLetters()
	env.t.Logf("round %d: %d processes ended", round, processes)
	for _, letter := range letters {
		require.True(env.t, string(letter.Payload) == poison, "round %d: %+v", round, letter)
	}
	isRight := len(letters) == 1 && processes <= 7
	require.True(env.t, isRight, "round %d: %d dead letters, want 1, and %d processes ended, want at most 7", round, len(letters), processes)
	require.NoError(env.t, env.Engine.DeadLetters("orders").Purge(env.t.Context()))
}

// runLethalWorkersUntilEmpty runs workers in processes, replaces those that end, until the queue is empty, and returns how many ended.
func (env *testEnv) runLethalWorkersUntilEmpty() (ended int) {
	env.t.Helper()
	ctx, stop := context.WithCancel(env.t.Context())
	defer stop()
	exits := make(chan error, lethalCount)
	start := func() {
		command := exec.CommandContext(ctx, os.Args[0])
		command.Env = append(os.Environ(), lethalBroker+"="+env.Server.ClientURL())
		command.Stderr = os.Stderr
		go func() { exits <- command.Run() }()
	}
	for range lethalCount {
		start()
	}
	timeout, check := time.After(testTimeout), time.NewTicker(100*time.Millisecond)
	defer check.Stop()
	for {
		select {
		case <-timeout:
			env.t.Fatal("the queue is not empty")
		case <-exits:
			ended++
			start()
		case <-check.C:
			if env.IsEmpty() {
				stop()
				for range lethalCount {
					<-exits
				}
				return ended
			}
		}
	}
}

// requireNoHistory fails the test if the bucket of the queue keeps the history of messages that are settled.
func (env *testEnv) requireNoHistory() {
	env.t.Helper()
	bucket := require.Call(env.JS.KeyValue(env.t.Context(), "yardmaster_orders")).Succeeds(env.t)
	keys, err := bucket.Keys(env.t.Context())
	require.True(env.t, err == nil || errors.Is(err, natsjs.ErrNoKeysFound), "%v", err)
	for _, key := range keys {
		require.True(env.t, !strings.HasPrefix(key, "returned."), "the bucket keeps %s", key)
	}
}

// withResults keeps the states of jobs for an hour.
func withResults(q *broker.QueueConfig) {
	q.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
}

// The work of a job whose result the broker refuses is done. It would be repeated in vain, without end.
func TestAJobWhoseResultIsTooLargeForTheBrokerRunsOnce(t *testing.T) {
	t.Parallel()
	const limit = 32 << 10
	for title, row := range map[string]struct {
		server *natstest.Server
		// bucketLimit is the largest state that the bucket accepts; 0: no limit.
		bucketLimit int32
		want        string
	}{
		"limit of the server": {natstest.Start(t, func(o *server.Options) { o.MaxPayload, o.MaxPending = limit, 8*limit }), 0, "maximum payload exceeded"},
		"limit of the bucket": {natstest.Start(t), limit, "message size exceeds maximum allowed"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			env := &testEnv{queuetest.StartOn(t, row.server, "orders", withResults), t}
			if row.bucketLimit > 0 {
				states := require.Call(env.JS.Stream(t.Context(), "KV_yardmaster_orders_jobs")).Succeeds(t)
				config := states.CachedInfo().Config
				config.MaxMsgSize = row.bucketLimit
				require.Call(env.JS.UpdateStream(t.Context(), config)).Succeeds(t)
			}
			env.Send("large", "small")
			calls := atomic.Int64{}
			w := env.start(env.config(func(c *Config) { c.Queues[0].Results = &ResultsConfig{Retention: Duration(time.Hour)} }), func(_ context.Context, job *Job) error {
				calls.Add(1)
				if string(job.Payload) == "small" {
					return job.SetResult("x")
				}
				return job.SetResult(strings.Repeat("x", limit+1))
			})
			env.WaitUntilEmpty()
			requireCleanShutdown(t, w)
			letters := env.DeadLetters()
			require.True(t, len(letters) == 1 && string(letters[0].Payload) == "large" && letters[0].Attempts == 1, "dead letters %+v", letters)
			require.Contains(t, letters[0].Error, "the broker refuses the result: ")
			require.Contains(t, letters[0].Error, row.want)
			unsettled, done := w.countedMessages(resultUnsettled), w.countedMessages(resultDone)
			require.Equal(t, [3]int{2, 0, 1}, [3]int{int(calls.Load()), unsettled, done})
		})
	}
}

// withTimeout sets the shortest timeout, and retries fast.
func withTimeout(c *Config) {
	withFastRetries(c)
	c.Queues[0].JobTimeout = Duration(broker.MinJobTimeout)
}

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
	isNamed := slices.ContainsFunc(letters, func(l broker.DeadLetter) bool { return l.Error == want })
	require.True(t, len(letters) == 5 && isNamed, "dead letters %+v", letters)
}

func TestTheJobOfAHandlerThatHangsGoesToAnotherWorker(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	config := env.config(withTimeout, func(c *Config) { c.Concurrency, c.Queues[0].Lease = 1, Duration(broker.MinLease) })
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
