package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// RejectNewMessages implements broker.Engine. It records that the queue drains, because asynq cannot reject messages.
// DeleteQueue then deletes the queue only if it is empty.
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

// dropExpiredScript deletes the tasks of lost workers, because asynq does not delete a queue with active tasks, and without a
// worker nothing recovers them.
const dropExpiredScript = `
local ids = redis.call("ZRANGE", KEYS[2], "-inf", ARGV[1], "BYSCORE")
for _, id in ipairs(ids) do
	redis.call("LREM", KEYS[1], 0, id)
	redis.call("ZREM", KEYS[2], id)
	redis.call("DEL", ARGV[2] .. id)
end
return #ids`

// DeleteQueue implements broker.Engine. It deletes the record with the owner last, so that an interrupted deletion can
// continue.
func (e *Engine) DeleteQueue(ctx context.Context, queue string, owner broker.QueueOwner) (err error) {
	defer func() { err = queueError("deleting", queue, err) }()
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
	isDraining := record[fieldClosed] != ""
	switch {
	case !known: // an interrupted deletion has left the record only
	case isDraining:
		// The caller has handled the dead letters; they would count as tasks of the queue.
		_, err = e.inspector.DeleteAllArchivedTasks(queue)
	default:
		keys := []string{queueKey(queue, activeList), queueKey(queue, leaseSet)}
		err = e.client.Eval(ctx, dropExpiredScript, keys, time.Now().Add(-leaseDuration).Unix(), taskKey(queue, "")).Err()
	}
	if err == nil && known {
		// A queue that drains is deleted only without tasks.
		err = e.inspector.DeleteQueue(queue, !isDraining)
	}
	if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) { // another operator may have deleted the queue
		return err
	}
	e.mu.Lock()
	delete(e.arrivalCounters, queue)
	e.mu.Unlock()
	return e.client.Del(ctx, queueKey(queue, pausedFlag), queueKey(queue, processedCount), queueKey(queue, failedCount),
		recordKey(queue, cancelsPart), recordKey(queue, revisionPart), recordKey(queue)).Err()
}
