package asynq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// checkOwner returns an error if the queue belongs to another owner.
func checkOwner(queue string, record map[string]string, owner broker.QueueOwner) error {
	if has := ownerFromRecord(record); has.UID != "" && has.UID != owner.UID {
		return &broker.OwnerConflictError{Queue: queue, Owner: has}
	}
	return nil
}

// checkOwnership returns an error if another owner keeps the queue.
func checkOwnership(q *broker.QueueConfig, record map[string]string) error {
	has := ownerFromRecord(record)
	switch {
	case has.UID == "", has.UID == q.Owner.UID, has.UID == q.ReplacesOwnerUID, q.Owner.HasPrecedenceOver(has):
		return nil
	}
	return &broker.OwnerConflictError{Queue: q.Name, Owner: has}
}

// configHash changes when the configuration changes.
func configHash(q *broker.QueueConfig) (string, error) {
	wanted := *q
	wanted.Owner, wanted.ReplacesOwnerUID = broker.QueueOwner{}, ""
	raw, err := json.Marshal(wanted)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8]), nil
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
