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
	"strconv"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The environment of a process of this test binary that is a worker, and ends itself when it runs a job with the payload poison.
const (
	lethalBroker = "YARDMASTER_TEST_BROKER"
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
		time.Sleep(time.Millisecond << rand.IntN(4))
		switch {
		case string(job.Payload) == poison:
			os.Exit(3)
		case strings.HasPrefix(string(job.Payload), transient) && job.Attempt == 1:
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
	rounds, _ := strconv.Atoi(os.Getenv("POISON_ROUNDS"))
	rounds = max(rounds, 1)
	env := newTestEnv(t)
	consumer, err := env.js.Consumer(t.Context(), "yardmaster_orders", broker.DefaultPriority)
	if err != nil {
		t.Fatal(err)
	}
	config := consumer.CachedInfo().Config
	config.AckWait = 2500 * time.Millisecond // so that a round is short: the jobs take milliseconds
	if _, err := env.js.UpdateConsumer(t.Context(), "yardmaster_orders", config); err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		payloads := numberedPayloads(1000)
		for i := 0; i < len(payloads); i += 10 {
			payloads[i] = transient + payloads[i]
		}
		payloads[rand.IntN(len(payloads))] = poison
		env.send(broker.DefaultPriority, payloads...)
		processes, begin := env.runUntilEmpty(2), time.Now()
		letters, err := env.engine.DeadLetters("orders").List(t.Context(), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d processes ended", round, processes)
		for _, letter := range letters {
			if string(letter.Payload) != poison {
				t.Errorf("round %d, %s: %s became a dead letter after %d attempts: %s", round, time.Since(begin), letter.Payload, letter.Attempts, letter.Error)
			}
		}
		if len(letters) != 1 || processes > 7 {
			t.Fatalf("round %d: %d dead letters, want 1, and %d processes ended, want at most 7", round, len(letters), processes)
		}
		if err := env.engine.DeadLetters("orders").Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	env.requireNoHistory()
}

// runUntilEmpty runs workers in processes, replaces those that end, until the queue is empty, and returns how many ended.
func (env *testEnv) runUntilEmpty(number int) (ended int) {
	env.t.Helper()
	ctx, stop := context.WithCancel(env.t.Context())
	exits := make(chan error, number)
	start := func() {
		command := exec.CommandContext(ctx, os.Args[0])
		command.Env = append(os.Environ(), lethalBroker+"="+env.server.ClientURL())
		command.Stderr = os.Stderr
		go func() { exits <- command.Run() }()
	}
	for range number {
		start()
	}
	timeout, check := time.After(testTimeout), time.NewTicker(100*time.Millisecond)
	defer check.Stop()
	for {
		select {
		case <-timeout:
			env.t.Fatalf("the queue is not empty: %+v", env.stats())
		case <-exits:
			ended++
			start()
		case <-check.C:
			if env.isEmpty() {
				stop()
				for range number {
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
	bucket, err := env.js.KeyValue(env.t.Context(), "yardmaster_orders")
	if err != nil {
		env.t.Fatal(err)
	}
	keys, err := bucket.Keys(env.t.Context())
	if err != nil && !errors.Is(err, natsjs.ErrNoKeysFound) {
		env.t.Fatal(err)
	}
	for _, key := range keys {
		if strings.HasPrefix(key, "returned.") {
			env.t.Errorf("the bucket keeps %s", key)
		}
	}
}
