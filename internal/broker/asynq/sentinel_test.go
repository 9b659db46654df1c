package asynq_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	engine "github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func enqueueOn(t *testing.T, s *redistest.Server, payloads ...string) {
	t.Helper()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: s.Address()})
	defer func() { _ = client.Close() }()
	for _, payload := range payloads {
		require.Call(client.Enqueue(asynq.NewTask("bill", []byte(payload)), asynq.Queue("orders"))).Succeeds(t)
	}
}

func TestWorkersAndTheOperatorContinueAfterAFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	operator, err := engine.Connect(t.Context(), broker.Credentials{
		URL: s.URL(), Sentinel: &broker.Sentinel{MasterName: redistest.MasterName}, Dial: bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team"),
	})
	require.NoError(t, err)
	defer operator.Disconnect()
	enqueueOn(t, s.Master, "before")
	c := &workerSet{t: t, done: map[string]int{}, config: worker.Config{
		Broker: worker.BrokerConfig{URL: s.URL(), Sentinel: worker.SentinelConfig{MasterName: redistest.MasterName}},
		Queues: []worker.QueueConfig{{Name: "orders"}}, AdminAddress: "0",
	}}
	c.startWorker()
	poll.Until(t, "the first task to run", func() bool { return c.countRun() == 1 })
	s.Master.RunCLI("WAIT", "1", "300000") // until the replica has everything
	s.Master.Stop()
	s.WaitForFailover()
	var after []string
	for n := range 20 {
		after = append(after, fmt.Sprint("after ", n))
	}
	enqueueOn(t, s.Replica, after...)
	poll.Until(t, "all tasks to run", func() bool { return c.countRun() == 21 })
	var stats broker.QueueStats
	err = poll.UntilNil(t.Context(), func() (err error) {
		stats, err = operator.Stats(t.Context(), "orders")
		return err
	})
	require.True(t, err == nil && stats.Ready == 0, "stats of the new master: %+v, %v", stats, err)
}

// workerSet runs workers that start and stop during the test.
type workerSet struct {
	t      *testing.T
	config worker.Config

	mu   sync.Mutex
	done map[string]int
}

func (c *workerSet) startWorker() (drain func()) {
	c.t.Helper()
	w := require.Call(worker.New(worker.Options{Config: c.config, Logger: slog.New(slog.DiscardHandler)}, c.handleJob)).Succeeds(c.t)
	return background.Run(c.t, w.Run)
}

func (c *workerSet) handleJob(_ context.Context, job *worker.Job) error {
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[string(job.Payload)]++
	return nil
}

func (c *workerSet) countRun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

// Tasks have only one attempt: a task that a drain loses is not retried, and every run of a task is counted.
func TestDrainingWorkersNeitherLosesNorDuplicatesTasks(t *testing.T) {
	t.Parallel()
	const tasks, minDrains = 5000, 5
	server := redistest.Start(t)
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Address()})
	defer func() { _ = client.Close() }()
	c := &workerSet{t: t, done: map[string]int{}, config: worker.Config{
		Broker: worker.BrokerConfig{URL: server.URL()}, Queues: []worker.QueueConfig{{Name: "orders"}}, AdminAddress: "0",
	}}
	sent, hasDrained := make(chan error, 1), make(chan struct{})
	go func() {
		for n := range tasks {
			if n == tasks/2 {
				<-hasDrained // a worker without a processor takes long to drain, and others run its tasks
			}
			if _, err := client.Enqueue(asynq.NewTask("bill", fmt.Append(nil, n)), asynq.Queue("orders"), asynq.MaxRetry(0)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()

	start, drains := time.Now(), 0
	drainFunctions := []func(){c.startWorker(), c.startWorker(), c.startWorker()}
	for drains < minDrains || c.countRun() < tasks && time.Since(start) < 5*time.Minute {
		// Shorter than a worker needs for the tasks it has fetched.
		time.Sleep(200 * time.Millisecond)
		drainFunctions[0]()
		drainFunctions = append(drainFunctions[1:], c.startWorker())
		drains++
		if drains == minDrains {
			close(hasDrained)
		}
	}
	for _, drain := range drainFunctions {
		drain()
	}
	require.NoError(t, <-sent)
	t.Logf("%d tasks in %s, with %d drains", c.countRun(), time.Since(start).Round(time.Millisecond), drains+len(drainFunctions))
	for n := range tasks {
		times := c.done[fmt.Sprint(n)]
		require.True(t, times == 1, "task %d ran %d times", n, times)
	}
	for set, command := range map[string]string{
		"pending": "LLEN", "active": "LLEN", "lease": "ZCARD", "retry": "ZCARD", "archived": "ZCARD", "scheduled": "ZCARD",
	} {
		left := server.RunCLIForNumber(command, "asynq:{orders}:"+set)
		require.True(t, left == 0, "%d tasks are %s", left, set)
	}
}
