package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
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
	env := newTestEnv(t)
	consumer, err := env.JS.Consumer(t.Context(), "yardmaster_orders", broker.DefaultPriority)
	require.NoError(t, err)
	config := consumer.CachedInfo().Config
	config.AckWait = 2500 * time.Millisecond // so that a round is short: the jobs take milliseconds
	_, err = env.JS.UpdateConsumer(t.Context(), "yardmaster_orders", config)
	require.NoError(t, err)
	for round := range testbuilder.NumberFromEnv(t, "POISON_ROUNDS", 1) {
		payloads := numberedPayloads(1000)
		for i := 0; i < len(payloads); i += 10 {
			payloads[i] = transient + payloads[i]
		}
		payloads[rand.IntN(len(payloads))] = poison
		env.Send(payloads...)
		processes, begin := env.runLethalWorkersUntilEmpty(), time.Now()
		letters := env.DeadLetters()
		t.Logf("round %d: %d processes ended", round, processes)
		for _, letter := range letters {
			if string(letter.Payload) != poison {
				t.Errorf("round %d, %s: %s became a dead letter after %d attempts: %s", round, time.Since(begin), letter.Payload, letter.Attempts, letter.Error)
			}
		}
		if len(letters) != 1 || processes > 7 {
			t.Fatalf("round %d: %d dead letters, want 1, and %d processes ended, want at most 7", round, len(letters), processes)
		}
		require.NoError(t, env.Engine.DeadLetters("orders").Purge(t.Context()))
	}
	env.requireNoHistory()
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
	bucket, err := env.JS.KeyValue(env.t.Context(), "yardmaster_orders")
	require.NoError(env.t, err)
	keys, err := bucket.Keys(env.t.Context())
	require.True(env.t, err == nil || errors.Is(err, natsjs.ErrNoKeysFound), "%v", err)
	for _, key := range keys {
		require.True(env.t, !strings.HasPrefix(key, "returned."), "the bucket keeps %s", key)
	}
}
