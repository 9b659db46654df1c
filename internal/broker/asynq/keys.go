package asynq

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// queuesKey is a set of the names of all queues of asynq.
const queuesKey = "asynq:queues"

// The keys that asynq has for each queue, without their prefix. All keys of a queue are on one server of a cluster.
const (
	pendingList    = "pending"
	activeList     = "active"
	leaseSet       = "lease"
	scheduledSet   = "scheduled"
	retrySet       = "retry"
	archivedSet    = "archived"
	pausedFlag     = "paused"
	processedCount = "processed"
	failedCount    = "failed"
)

func queueKey(queue, key string) string { return "asynq:{" + queue + "}:" + key }

// taskKey returns the key of a task; with an empty ID, the prefix of the keys of all tasks.
func taskKey(queue, id string) string { return queueKey(queue, "t:"+id) }

// fieldAttempts is a field that this package adds to archived tasks: the attempts of the dead letter.
const fieldAttempts = "yardmaster_attempts"

// Fields that this package adds to tasks that failed or were lost: see broker.History.
const (
	fieldFailed      = "yardmaster_failed"
	fieldLostStarted = "yardmaster_lost_started"
	fieldLostAlone   = "yardmaster_lost_alone"
)

// The keys that this package has for each queue, in addition to its record.
const (
	cancelsPart  = "cancels"  // the IDs of tasks that their workers have to cancel
	canceledPart = "canceled" // followed by the ID of a canceled task
	// revisionPart counts changes of keys, so that a key that was deleted or has expired does not get an old revision again.
	revisionPart = "revision"
)

// recordKey returns the key of the record of a queue, which has its owner, or with parts another key of this package.
func recordKey(queue string, parts ...string) string {
	return strings.Join(append([]string{"yardmaster:{" + queue + "}"}, parts...), ":")
}

// Fields of the record of a queue.
const (
	fieldOwnerUID     = "owner-uid"
	fieldOwnerName    = "owner-name"
	fieldOwnerCluster = "owner-cluster"
	// fieldAppliedHash has the hash of the configuration that was last applied.
	fieldAppliedHash = "applied"
	// fieldClosed: the queue is to be deleted once it is empty.
	fieldClosed = "closed"
	// fieldRetention is how long the states of jobs are kept, in seconds; missing: they are not kept.
	fieldRetention = "results-retention"
)

func ownerFromRecord(record map[string]string) broker.QueueOwner {
	return broker.QueueOwner{UID: record[fieldOwnerUID], Name: record[fieldOwnerName], Cluster: record[fieldOwnerCluster]}
}

func ownerFields(owner broker.QueueOwner) map[string]any {
	return map[string]any{fieldOwnerUID: owner.UID, fieldOwnerName: owner.Name, fieldOwnerCluster: owner.Cluster}
}

// updateRecord writes in a transaction, unless the function returned by decide is nil, and repeats both if the record or the
// pause changes meanwhile.
func (e *Engine) updateRecord(
	ctx context.Context, queue string, decide func(record map[string]string, paused bool) (func(goredis.Pipeliner), error),
) error {
	for {
		err := e.client.Watch(ctx, func(tx *goredis.Tx) error {
			record, err := tx.HGetAll(ctx, recordKey(queue)).Result()
			if err != nil {
				return err
			}
			paused, err := tx.Exists(ctx, queueKey(queue, pausedFlag)).Result()
			if err != nil {
				return err
			}
			write, err := decide(record, paused > 0)
			if err != nil || write == nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p goredis.Pipeliner) error {
				write(p)
				return nil
			})
			return err
		}, recordKey(queue), queueKey(queue, pausedFlag))
		if err != goredis.TxFailedErr || ctx.Err() != nil { //nolint:errorlint // it is never wrapped
			return err
		}
	}
}
