package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// RejectNewMessages notes that the queue is to run empty. asynq cannot refuse producers, so nothing but
// Delete minds: it deletes a queue that was closed only if it is empty.
func (e *Engine) RejectNewMessages(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := e.change(ctx, queue, func(record map[string]string, _ bool) (func(goredis.Pipeliner), error) {
		if len(record) == 0 {
			return nil, nil // it is not there
		}
		return func(p goredis.Pipeliner) { p.HSet(ctx, recordOf(queue), fieldClosed, "true") }, held(queue, record, owner)
	})
	return redisclient.ClassifyError("closing the queue "+queue, err)
}

// ReleaseOwnership lets another object own the queue, and leaves it as it is.
func (e *Engine) ReleaseOwnership(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := e.change(ctx, queue, func(record map[string]string, _ bool) (func(goredis.Pipeliner), error) {
		return func(p goredis.Pipeliner) { p.Del(ctx, recordOf(queue)) }, held(queue, record, owner)
	})
	return redisclient.ClassifyError("releasing the queue "+queue, err)
}

// abandoned drops tasks whose workers are not heard of any more: asynq deletes no queue of
// which tasks are being worked on, and without a worker nothing would end that.
const abandoned = `
local ids = redis.call("ZRANGE", KEYS[2], "-inf", ARGV[1], "BYSCORE")
for _, id in ipairs(ids) do
	redis.call("LREM", KEYS[1], 0, id)
	redis.call("ZREM", KEYS[2], id)
	redis.call("DEL", ARGV[2] .. id)
end
return #ids`

// DeleteQueue removes the queue with all that is in it. The record of whose it is goes last, so
// that a deletion that broke off can be taken up again.
func (e *Engine) DeleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) error {
	return redisclient.ClassifyError("deleting the queue "+queue, e.delete(ctx, queue, owner))
}

func (e *Engine) delete(ctx context.Context, queue string, owner broker.QueueOwner) error {
	record, err := e.client.HGetAll(ctx, recordOf(queue)).Result()
	if err == nil {
		err = held(queue, record, owner)
	}
	if err != nil {
		return err
	}
	closed := record[fieldClosed] != ""
	if closed {
		// Whoever closed it has dealt with the dead letters; they would count as something
		// that is in it.
		if _, err := e.inspector.DeleteAllArchivedTasks(queue); err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			return err
		}
	} else {
		keys := []string{activeOf(queue), leaseOf(queue)}
		if err := e.client.Eval(ctx, abandoned, keys, time.Now().Add(-leaseDuration).Unix(), taskOf(queue, "")).Err(); err != nil {
			return err
		}
	}
	if err := e.inspector.DeleteQueue(queue, !closed); err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
		return err
	}
	e.forget(queue)
	return e.client.Del(ctx, pausedOf(queue), processedOf(queue), failedOf(queue), recordOf(queue)).Err()
}

func (e *Engine) forget(queue string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.arrivals, queue)
}
