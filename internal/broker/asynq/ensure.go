package asynq

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// EnsureQueue implements broker.Engine. The pause is the only setting of a queue in asynq.
func (e *Engine) EnsureQueue(ctx context.Context, queue broker.QueueConfig) (broker.EnsureResult, error) {
	if err := queue.Validate(); err != nil {
		return broker.EnsureResult{}, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	outcome, err := e.ensureQueue(ctx, &queue)
	return outcome, queueError("ensuring", queue.Name, err)
}

func (e *Engine) ensureQueue(ctx context.Context, q *broker.QueueConfig) (broker.EnsureResult, error) {
	known, err := e.client.SIsMember(ctx, queuesKey, q.Name).Result()
	if err != nil {
		return broker.EnsureResult{}, err
	}
	if !known && q.MustExist {
		return broker.EnsureResult{}, queueNotFound(q.Name)
	}
	n := &ensureOperation{queue: q, queueExists: known, configHash: broker.HashConfig(q.WithoutOwner())}
	err = e.updateRecord(ctx, q.Name, func(record map[string]string, paused bool) (func(goredis.Pipeliner), error) {
		if known || len(record) > 0 {
			if err := q.CheckOwnership(ownerFromRecord(record)); err != nil {
				return nil, err
			}
		}
		n.compareRecord(record, paused)
		isApplied := known && record[fieldAppliedHash] == n.configHash && ownerFromRecord(record) == q.Owner && record[fieldClosed] == ""
		if isApplied && (paused == q.Paused || !n.applyChanges) {
			return nil, nil
		}
		return func(p goredis.Pipeliner) { n.writeRecord(ctx, p) }, nil
	})
	if err == nil && !known {
		err = e.client.SAdd(ctx, queuesKey, q.Name).Err()
	}
	n.result.Enforcement = e.capabilitiesFor(q)
	return n.result, err
}

// ensureOperation is one call of EnsureQueue.
type ensureOperation struct {
	queue      *broker.QueueConfig
	configHash string
	// queueExists: asynq has the queue.
	queueExists bool
	// applyChanges: what is not as it is to be is changed.
	applyChanges bool
	result       broker.EnsureResult
}

// compareRecord finds drift: differences from what was last applied.
func (n *ensureOperation) compareRecord(record map[string]string, paused bool) {
	n.result = broker.EnsureResult{Created: !n.queueExists, Updated: n.queueExists && record[fieldAppliedHash] != n.configHash}
	anew := n.result.Created || n.result.Updated
	n.applyChanges = anew || n.queue.Drift == broker.DriftCorrect
	if paused != n.queue.Paused && !anew {
		n.result.Drift = []broker.SettingDifference{{
			Object: "queue " + n.queue.Name, Setting: "paused",
			Want: strconv.FormatBool(n.queue.Paused), Found: strconv.FormatBool(paused),
		}}
		n.result.Corrected = n.applyChanges
	}
}

func (n *ensureOperation) writeRecord(ctx context.Context, p goredis.Pipeliner) {
	p.HSet(ctx, recordKey(n.queue.Name), ownerFields(n.queue.Owner))
	p.HSet(ctx, recordKey(n.queue.Name), fieldAppliedHash, n.configHash)
	p.HDel(ctx, recordKey(n.queue.Name), fieldClosed, fieldRetention)
	if retention := n.queue.Results.Retention; retention > 0 {
		p.HSet(ctx, recordKey(n.queue.Name), fieldRetention, int64(retention/time.Second))
	}
	// The Inspector of asynq does the same outside a transaction.
	switch {
	case n.applyChanges && n.queue.Paused:
		p.SetNX(ctx, pausedKey(n.queue.Name), time.Now().Unix(), 0)
	case n.applyChanges:
		p.Del(ctx, pausedKey(n.queue.Name))
	}
}
