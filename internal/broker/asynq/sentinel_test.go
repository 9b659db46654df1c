package asynq_test

import (
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	engine "github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
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
		_, err := client.Enqueue(asynq.NewTask("bill", []byte(payload)), asynq.Queue("orders"))
		require.NoError(t, err)
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
