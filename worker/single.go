package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/construct"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

func init() { construct.Runner = newRunner }

// newRunner returns a function that runs a message, as a worker does that does not receive messages itself.
func newRunner(
	ctx context.Context, store broker.KeyStore, subscription broker.Subscription, queue broker.QueueConfig, handler any, now func() time.Time,
) (run func(broker.Delivery), stop func(), err error) {
	h, isHandler := handler.(Handler)
	if !isHandler {
		return nil, nil, fmt.Errorf("the handler is a %T", handler)
	}
	w, err := New(Options{
		Config: Config{Broker: BrokerConfig{URL: "unused"}, Queues: []QueueConfig{{Name: queue.Name}}}, Logger: slog.New(slog.DiscardHandler),
	}, h)
	if err != nil {
		return nil, nil, err
	}
	w.now, w.keys, w.handlerContext, w.settleContext = now, jobkeys.New(store), ctx, context.WithoutCancel(ctx)
	scheduled := scheduler.NewScheduledQueue(scheduler.QueueConfig{QueueConfig: queue, Weight: 1}, nil)
	recorder, err := w.openRecorder(ctx, subscription, &scheduled.Config)
	if err != nil {
		return nil, nil, err
	}
	w.reports.setRecorder(queue.Name, recorder)
	w.scheduler.SetQueues([]*scheduler.ScheduledQueue{scheduled}, scheduler.MessageLimits{Concurrency: 1, MaxInFlight: 1})
	var last *scheduler.LeasedMessage
	var outcome scheduler.JobOutcome
	return func(d broker.Delivery) { //nolint:contextcheck // the contexts of the worker are set above
		w.scheduler.AddMessage(scheduled.Buffers[0], scheduler.FetchRequest{Poll: true}, d)
		last = w.scheduler.NextMessage(last, outcome)
		outcome = w.runMessage(last)
	}, recorder.stop, nil
}
