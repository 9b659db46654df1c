package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// RejectNewMessages records that the queue drains. asynq cannot reject messages; DeleteQueue
// then deletes the queue only if it is empty.
func (e *Engine) RejectNewMessages(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := e.updateRecord(ctx, queue, func(record map[string]string, _ bool) (func(goredis.Pipeliner), error) {
		if len(record) == 0 {
			return nil, broker.Errorf(broker.ClassNotFound, "no Queue has created it")
		}
		return func(p goredis.Pipeliner) { p.HSet(ctx, recordKey(queue), fieldClosed, "true") }, broker.CheckOwner(queue, ownerFromRecord(record), owner)
	})
	return queueError("closing", queue, err)
}

// ReleaseOwnership implements broker.Engine.
func (e *Engine) ReleaseOwnership(ctx context.Context, queue string, owner broker.QueueOwner) error {
	err := e.updateRecord(ctx, queue, func(record map[string]string, _ bool) (func(goredis.Pipeliner), error) {
		return func(p goredis.Pipeliner) {
			p.HSet(ctx, recordKey(queue), ownerFields(owner.Released()))
			p.HDel(ctx, recordKey(queue), fieldAppliedHash, fieldClosed)
		}, broker.CheckOwner(queue, ownerFromRecord(record), owner)
	})
	return queueError("releasing", queue, err)
}

// dropExpiredScript deletes tasks of lost workers: asynq does not delete a queue with active
// tasks, and without a worker nothing would recover them.
const dropExpiredScript = `
local ids = redis.call("ZRANGE", KEYS[2], "-inf", ARGV[1], "BYSCORE")
for _, id in ipairs(ids) do
	redis.call("LREM", KEYS[1], 0, id)
	redis.call("ZREM", KEYS[2], id)
	redis.call("DEL", ARGV[2] .. id)
end
return #ids`

// DeleteQueue implements broker.Engine. It deletes the record of the owner last, so that an
// interrupted deletion can continue.
func (e *Engine) DeleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) error {
	return queueError("deleting", queue, e.deleteQueue(ctx, queue, owner))
}

func (e *Engine) deleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) error {
	record, err := e.client.HGetAll(ctx, recordKey(queue)).Result()
	if err != nil {
		return err
	}
	known, err := e.client.SIsMember(ctx, queuesKey, queue).Result()
	if err != nil || !known && len(record) == 0 {
		return err
	}
	if err := broker.CheckOwner(queue, ownerFromRecord(record), owner); err != nil {
		return err
	}
	if known { // an interrupted deletion has left the record only
		if err := e.deleteTasks(ctx, queue, record[fieldClosed] != ""); err != nil {
			return err
		}
	}
	e.mu.Lock()
	delete(e.arrivalCounters, queue)
	e.mu.Unlock()
	return e.client.Del(ctx, pausedKey(queue), processedKey(queue), failedKey(queue), cancelsKey(queue), revisionKey(queue), recordKey(queue)).Err()
}

// deleteTasks deletes the queue in asynq, a closed one only without tasks other than dead letters.
func (e *Engine) deleteTasks(ctx context.Context, queue string, closed bool) error {
	if closed {
		// The caller has handled the dead letters; they would count as tasks of the queue.
		if _, err := e.inspector.DeleteAllArchivedTasks(queue); err != nil {
			return err
		}
	} else {
		keys := []string{activeKey(queue), leaseKey(queue)}
		if err := e.client.Eval(ctx, dropExpiredScript, keys, time.Now().Add(-leaseDuration).Unix(), taskKey(queue, "")).Err(); err != nil {
			return err
		}
	}
	err := e.inspector.DeleteQueue(queue, !closed)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return nil // another operator deleted it
	}
	return err
}
