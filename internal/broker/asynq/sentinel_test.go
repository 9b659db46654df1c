package asynq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	engine "github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
	"github.com/yardmaster/yardmaster/worker"
)

func enqueueOn(t *testing.T, s *redistest.Server, payloads ...string) {
	t.Helper()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: s.Address()})
	defer func() { _ = client.Close() }()
	for _, payload := range payloads {
		if _, err := client.Enqueue(asynq.NewTask("bill", []byte(payload)), asynq.Queue("orders")); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *workerSet) waitUntilRun(count int, limit time.Duration) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); c.countRun() < count; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%d of %d tasks ran within %s", c.countRun(), count, limit)
		}
	}
}

func TestWorkersAndTheOperatorContinueAfterAFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	operator, err := engine.Connect(t.Context(), broker.Credentials{
		URL: s.URL(), Sentinel: &broker.Sentinel{MasterName: redistest.MasterName}, Dial: bounded.NewDialer(bounded.Options{AllowLocal: true}).For("team"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Disconnect()
	enqueueOn(t, s.Master, "before")
	c := &workerSet{t: t, done: map[string]int{}, config: worker.Config{
		Broker: worker.BrokerConfig{URL: s.URL(), Sentinel: worker.SentinelConfig{MasterName: redistest.MasterName}},
		Queues: []worker.QueueConfig{{Name: "orders"}}, AdminAddress: "0",
	}}
	defer c.startWorker()()
	c.waitUntilRun(1, 20*time.Second)
	s.Master.RunCLI("WAIT", "1", "5000") // until the replica has everything
	s.Master.Stop()
	s.WaitForFailover()
	var after []string
	for n := range 20 {
		after = append(after, fmt.Sprint("after ", n))
	}
	enqueueOn(t, s.Replica, after...)
	c.waitUntilRun(21, 20*time.Second)
	var stats broker.QueueStats
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if stats, err = operator.Stats(t.Context(), "orders"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the operator does not use the new master: %v", err)
		}
	}
	if stats.Ready != 0 {
		t.Errorf("stats %+v", stats)
	}
}
