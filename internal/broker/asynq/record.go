package asynq

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Fields of the record of a queue.
const (
	fieldOwnerUID     = "owner-uid"
	fieldOwnerName    = "owner-name"
	fieldOwnerCreated = "owner-created"
	// fieldAppliedHash is the fingerprint of what was last carried out.
	fieldAppliedHash = "applied"
	// fieldClosed: the queue is to be deleted once it is empty.
	fieldClosed = "closed"
)

// ownerFromRecord returns the owner of a queue. Anyone may have written the record: an
// unreadable creation time counts as now, so that the owner has precedence over no one.
func ownerFromRecord(record map[string]string) broker.QueueOwner {
	created, err := time.Parse(time.RFC3339Nano, record[fieldOwnerCreated])
	if err != nil {
		created = time.Now()
	}
	return broker.QueueOwner{UID: record[fieldOwnerUID], Name: record[fieldOwnerName], CreationTime: created}
}

func recordFields(owner broker.QueueOwner, applied string) map[string]any {
	return map[string]any{
		fieldOwnerUID: owner.UID, fieldOwnerName: owner.Name, fieldOwnerCreated: owner.CreationTime.UTC().Format(time.RFC3339Nano), fieldAppliedHash: applied,
	}
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
