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

// The fields of a queue's record.
const (
	fieldUID     = "owner-uid"
	fieldName    = "owner-name"
	fieldCreated = "owner-created"
	// fieldApplied is the fingerprint of what was last carried out.
	fieldApplied = "applied"
	// fieldClosed: the queue is to be deleted once it is empty.
	fieldClosed = "closed"
)

// ownerOf a queue, by its record. Who wrote it may be anybody: an age that cannot be read
// is none, and a younger owner precedes nobody.
func ownerOf(record map[string]string) broker.QueueOwner {
	created, err := time.Parse(time.RFC3339Nano, record[fieldCreated])
	if err != nil {
		created = time.Now()
	}
	return broker.QueueOwner{UID: record[fieldUID], Name: record[fieldName], CreationTime: created}
}

func recordFields(owner broker.QueueOwner, applied string) map[string]any {
	return map[string]any{
		fieldUID: owner.UID, fieldName: owner.Name, fieldCreated: owner.CreationTime.UTC().Format(time.RFC3339Nano), fieldApplied: applied,
	}
}

// held tells whether the queue belongs to owner, or to nobody.
func held(queue string, record map[string]string, owner broker.QueueOwner) error {
	if has := ownerOf(record); has.UID != "" && has.UID != owner.UID {
		return &broker.OwnerConflictError{Queue: queue, Owner: has}
	}
	return nil
}

// claim tells whether the queue may be taken from who has it.
func claim(q *broker.QueueConfig, record map[string]string) error {
	has := ownerOf(record)
	switch {
	case has.UID == "", has.UID == q.Owner.UID, has.UID == q.ReplacesOwnerUID, q.Owner.HasPrecedenceOver(has):
		return nil
	}
	return &broker.OwnerConflictError{Queue: q.Name, Owner: has}
}

// fingerprint tells one wanted queue from another.
func fingerprint(q *broker.QueueConfig) (string, error) {
	wanted := *q
	wanted.Owner, wanted.ReplacesOwnerUID = broker.QueueOwner{}, ""
	raw, err := json.Marshal(wanted)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8]), nil
}

// change writes what depends on a queue's record, in one transaction: if the record is
// another's by then, nothing is written, and it is looked at again.
func (e *Engine) change(
	ctx context.Context, queue string, decide func(record map[string]string, paused bool) (func(goredis.Pipeliner), error),
) error {
	for {
		err := e.client.Watch(ctx, func(tx *goredis.Tx) error {
			record, err := tx.HGetAll(ctx, recordOf(queue)).Result()
			if err != nil {
				return err
			}
			paused, err := tx.Exists(ctx, pausedOf(queue)).Result()
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
		}, recordOf(queue), pausedOf(queue))
		if err != goredis.TxFailedErr || ctx.Err() != nil { //nolint:errorlint // it is never wrapped
			return err
		}
	}
}
