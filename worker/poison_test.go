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
	"syscall"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/require"
)

// The environment of a process of this test binary that is a worker, and kills itself when it runs a job with the payload poison.
const (
	lethalBroker = "YARDMASTER_TEST_BROKER"
	lethalQueue  = "YARDMASTER_TEST_QUEUE"
	poison       = "poison"
	transient    = "fails once"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(lethalBroker); url != "" {
		runLethalWorker(url, os.Getenv(lethalQueue))
		return
	}
	os.Exit(m.Run())
}

func runLethalWorker(url, queue string) {
	c := Config{Broker: BrokerConfig{URL: url}, Queues: []QueueConfig{{Name: queue, Lease: Duration(broker.MinLease)}}, AdminAddress: "0"}
	c.Queues[0].Retry = &RetryPolicy{InitialDelay: new(Duration(time.Millisecond)), MaxDelay: new(Duration(time.Millisecond))}
	err := Run(context.Background(), Options{Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, func(_ context.Context, job *Job) error {
		if string(job.Payload) == poison {
			time.Sleep(time.Millisecond << rand.IntN(4))
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if queue != "orders" {
			time.Sleep(100 * time.Millisecond) // of few jobs, those beside the poison are lost each time
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
	rounds, _ := strconv.Atoi(os.Getenv("POISON_ROUNDS"))
	rounds = max(rounds, 1)
	env := newTestEnv(t)
	consumer, err := env.js.Consumer(t.Context(), "yardmaster_orders", broker.DefaultPriority)
	require.NoError(t, err)
	config := consumer.CachedInfo().Config
	config.AckWait = 2500 * time.Millisecond // so that a round is short: the jobs take milliseconds
	_, err = env.js.UpdateConsumer(t.Context(), "yardmaster_orders", config)
	require.NoError(t, err)
	for round := range rounds {
		payloads := numberedPayloads(1000)
		for i := 0; i < len(payloads); i += 10 {
			payloads[i] = transient + payloads[i]
		}
		payloads[rand.IntN(len(payloads))] = poison
		env.send(broker.DefaultPriority, payloads...)
		processes, begin := runUntilEmpty(t, lethalProcesses{url: env.server.ClientURL(), queue: "orders", number: 2}, env.isEmpty), time.Now()
		letters := env.deadLetters()
		t.Logf("round %d: %d processes ended", round, processes)
		for _, letter := range letters {
			if string(letter.Payload) != poison {
				t.Errorf("round %d, %s: %s became a dead letter after %d attempts: %s", round, time.Since(begin), letter.Payload, letter.Attempts, letter.Error)
			}
		}
		if len(letters) != 1 || processes > 7 {
			t.Fatalf("round %d: %d dead letters, want 1, and %d processes ended, want at most 7", round, len(letters), processes)
		}
		require.NoError(t, env.engine.DeadLetters("orders").Purge(t.Context()))
	}
	env.requireNoHistory()
}

// On asynq, one process runs at a time, because the test lets all leases of the queue expire when a process is lost.
func TestATaskThatEndsItsProcessBecomesTheOnlyDeadLetterOnAsynq(t *testing.T) {
	t.Parallel()
	q := startServers(t).newQueue(t, deadLetterState{engine: dial.AsynqEngine})
	payloads := numberedPayloads(20)
	for i := 0; i < len(payloads); i += 4 {
		payloads[i] = transient + payloads[i]
	}
	payloads[rand.IntN(len(payloads))] = poison
	for _, payload := range payloads {
		q.send(payload)
	}
	processes := runUntilEmpty(t, lethalProcesses{url: q.url, queue: q.name, number: 1, replace: q.expireLeases}, func() bool {
		q.setTimes("retry")
		stats, err := q.engine.Stats(t.Context(), q.name)
		return err == nil && stats.Ready+stats.InFlight+stats.Delayed == 0
	})
	letters := q.fate().DeadLetters
	t.Logf("%d processes ended: %v", processes, letters)
	if len(letters) != 1 || letters[0].Payload != poison || processes < 1 || processes > 7 {
		t.Errorf("%d processes ended, want at most 7, and the dead letters are %v, want only %s", processes, letters, poison)
	}
}

// lethalProcesses are processes that work on a queue. replace runs before a lost process is replaced; nil does nothing.
type lethalProcesses struct {
	url, queue string
	number     int
	replace    func()
}

// runUntilEmpty runs workers in processes, replaces those that end, until the queue is empty, and returns how many ended.
func runUntilEmpty(t *testing.T, p lethalProcesses, isEmpty func() bool) (ended int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	exits := make(chan error, p.number)
	start := func() {
		command := exec.CommandContext(ctx, os.Args[0])
		command.Env = append(os.Environ(), lethalBroker+"="+p.url, lethalQueue+"="+p.queue)
		command.Stderr = os.Stderr
		go func() { exits <- command.Run() }()
	}
	for range p.number {
		start()
	}
	timeout, check := time.After(testTimeout), time.NewTicker(100*time.Millisecond)
	defer check.Stop()
	for {
		select {
		case <-timeout:
			t.Fatal("the queue is not empty")
		case <-exits:
			ended++
			if p.replace != nil {
				p.replace()
			}
			start()
		case <-check.C:
			if isEmpty() {
				stop()
				for range p.number {
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
	require.NoError(env.t, err)
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
