package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/clock"
)

const cancelPollInterval = time.Second

// jobRecorder implements broker.JobRecorder. asynq itself stores the states.
type jobRecorder struct {
	*Engine
	queue string
	stop  context.CancelFunc
	done  chan struct{}
}

// JobRecorder implements broker.Subscription.
func (o *queueSubscription) JobRecorder(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) (broker.JobRecorder, error) {
	polling, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &jobRecorder{Engine: o.Engine, queue: o.queue, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for polling.Err() == nil {
			ids, err := r.client.HKeys(polling, recordKey(r.queue, cancelsPart)).Result()
			if err == nil {
				for _, id := range ids {
					onCancel(id, jobstate.Cancel{})
				}
			}
			_ = clock.SleepContext(polling, cancelPollInterval)
		}
	}()
	return r, nil
}

// Stop implements broker.JobRecorder.
func (r *jobRecorder) Stop() {
	r.stop()
	<-r.done
}

// Record implements broker.JobRecorder.
func (r *jobRecorder) Record(ctx context.Context, d broker.Delivery, entry *jobstate.Entry) error {
	task, isOurs := d.(*leasedTask)
	if !isOurs {
		return errors.New("the message is of another engine")
	}
	switch entry.State {
	case jobstate.Done:
		if entry.Result != nil {
			_, err := task.task.ResultWriter().Write(entry.Result)
			return queueError("recording a job of", r.queue, err)
		}
	case jobstate.Canceled:
		return queueError("recording a job of", r.queue, r.recordCanceled(ctx, r.queue, task.id))
	case jobstate.Waiting, jobstate.Running, jobstate.Retrying, jobstate.Dead, jobstate.Unknown:
	}
	return nil
}

// EndCancel implements broker.JobRecorder.
func (r *jobRecorder) EndCancel(ctx context.Context, id string) error {
	return queueError("recording a job of", r.queue, r.client.HDel(ctx, recordKey(r.queue, cancelsPart), id).Err())
}
