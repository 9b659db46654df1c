package asynq

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/clock"
)

const (
	cancelPollInterval = time.Second
	// cancelValidity outlasts a slow reading of the requests.
	cancelValidity = 3 * cancelPollInterval
)

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
			r.readCancels(polling, onCancel)
			_ = clock.SleepContext(polling, cancelPollInterval)
		}
	}()
	return r, nil
}

// readCancels reports the requests to cancel jobs that have not ended. It deletes those of other jobs, which ended before a worker saw the
// request: the request is not for a later job with the same ID.
func (r *jobRecorder) readCancels(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) {
	key := recordKey(r.queue, cancelsPart)
	requests, err := r.client.HGetAll(ctx, key).Result()
	if err != nil {
		return
	}
	for id, requested := range requests {
		task, err := r.inspector.GetTaskInfo(r.queue, id)
		if hasTaskEnded(task, err) {
			_ = deleteCancel.Run(ctx, r.client, []string{key}, id, requested).Err()
			continue
		}
		onCancel(id, jobstate.Cancel{ValidFor: cancelValidity})
	}
}

// deleteCancel deletes a request to cancel a job, unless there is a new one.
var deleteCancel = goredis.NewScript(`return redis.call("HGET", KEYS[1], ARGV[1]) == ARGV[2] and redis.call("HDEL", KEYS[1], ARGV[1]) or 0`)

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
