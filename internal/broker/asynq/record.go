package asynq

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Fields of the record of a queue.
const (
	fieldOwnerUID     = "owner-uid"
	fieldOwnerName    = "owner-name"
	fieldOwnerCluster = "owner-cluster"
	// fieldAppliedHash is the fingerprint of what was last carried out.
	fieldAppliedHash = "applied"
	// fieldClosed: the queue is to be deleted once it is empty.
	fieldClosed = "closed"
	// fieldRetention is how long the states of jobs are kept, in seconds, if they are.
	fieldRetention = "results-retention"
)

func ownerFromRecord(record map[string]string) broker.QueueOwner {
	return broker.QueueOwner{UID: record[fieldOwnerUID], Name: record[fieldOwnerName], Cluster: record[fieldOwnerCluster]}
}

func ownerFields(owner broker.QueueOwner) map[string]any {
	return map[string]any{fieldOwnerUID: owner.UID, fieldOwnerName: owner.Name, fieldOwnerCluster: owner.Cluster}
}

// updateRecord writes in one transaction, and repeats it if the record changes meanwhile.
func (e *Engine) updateRecord(
	ctx context.Context, queue string, decide func(record map[string]string, paused bool) (func(goredis.Pipeliner), error),
) error {
	for {
		err := e.client.Watch(ctx, func(tx *goredis.Tx) error {
			record, err := tx.HGetAll(ctx, recordKey(queue)).Result()
			if err != nil {
				return err
			}
			paused, err := tx.Exists(ctx, pausedKey(queue)).Result()
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
		}, recordKey(queue), pausedKey(queue))
		if err != goredis.TxFailedErr || ctx.Err() != nil { //nolint:errorlint // it is never wrapped
			return err
		}
	}
}
