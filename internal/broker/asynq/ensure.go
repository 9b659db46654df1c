package asynq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// EnsureQueue makes the queue what it is to be, or tells in what it is not. Of all that a queue
// can be, asynq only keeps whether it is paused.
func (e *Engine) EnsureQueue(ctx context.Context, queue broker.QueueConfig) (broker.EnsureResult, error) {
	if err := queue.Validate(); err != nil {
		return broker.EnsureResult{}, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	outcome, err := e.ensure(ctx, &queue)
	return outcome, redisclient.ClassifyError("ensuring the queue "+queue.Name, err)
}

func (e *Engine) ensure(ctx context.Context, q *broker.QueueConfig) (broker.EnsureResult, error) {
	known, err := e.client.SIsMember(ctx, allQueues, q.Name).Result()
	if err != nil {
		return broker.EnsureResult{}, err
	}
	n := &ensuring{queue: q, known: known}
	if n.applied, err = fingerprint(q); err != nil {
		return broker.EnsureResult{}, err
	}
	err = e.change(ctx, q.Name, func(record map[string]string, paused bool) (func(goredis.Pipeliner), error) {
		if err := claim(q, record); err != nil {
			return nil, err
		}
		n.compare(record, paused)
		if n.right(record, paused) {
			return nil, nil
		}
		return func(p goredis.Pipeliner) { n.write(ctx, p) }, nil
	})
	if err == nil && !known {
		err = e.client.SAdd(ctx, allQueues, q.Name).Err()
	}
	n.outcome.Enforcement = e.capabilitiesFor(q)
	return n.outcome, err
}

// ensuring is one call of Ensure.
type ensuring struct {
	queue   *broker.QueueConfig
	applied string
	// known: asynq has the queue.
	known bool
	// correct: what is not as it is to be is changed.
	correct bool
	outcome broker.EnsureResult
}

// compare tells in what the queue is not what it is to be. Only of drift is told what
// differs from what had been carried out.
func (n *ensuring) compare(record map[string]string, paused bool) {
	n.outcome = broker.EnsureResult{Created: !n.known, Updated: n.known && record[fieldApplied] != n.applied}
	anew := n.outcome.Created || n.outcome.Updated
	n.correct = anew || n.queue.Drift == broker.DriftCorrect
	if paused != n.queue.Paused && !anew {
		n.outcome.Drift = []broker.SettingDifference{{
			Object: "queue " + n.queue.Name, Setting: "paused",
			Want: strconv.FormatBool(n.queue.Paused), Found: strconv.FormatBool(paused),
		}}
		n.outcome.Corrected = n.correct
	}
}

// right tells that nothing is to be written.
func (n *ensuring) right(record map[string]string, paused bool) bool {
	same := n.known && record[fieldApplied] == n.applied && record[fieldUID] == n.queue.Owner.UID && record[fieldClosed] == ""
	return same && (paused == n.queue.Paused || !n.correct)
}

func (n *ensuring) write(ctx context.Context, p goredis.Pipeliner) {
	p.HSet(ctx, recordOf(n.queue.Name), recordFields(n.queue.Owner, n.applied))
	p.HDel(ctx, recordOf(n.queue.Name), fieldClosed)
	if n.correct {
		pause(ctx, p, n.queue.Name, n.queue.Paused)
	}
}

// pause is what asynq's Inspector does, as a part of a transaction.
func pause(ctx context.Context, p goredis.Pipeliner, queue string, paused bool) {
	if paused {
		p.SetNX(ctx, pausedOf(queue), time.Now().Unix(), 0)
	} else {
		p.Del(ctx, pausedOf(queue))
	}
}

// SetPaused stops messages from being given to workers, or lets them.
func (e *Engine) SetPaused(ctx context.Context, queue string, paused bool) error {
	err := e.exists(ctx, queue)
	if err == nil {
		_, err = e.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
			pause(ctx, p, queue, paused)
			return nil
		})
	}
	return redisclient.ClassifyError(fmt.Sprintf("setting the pause of the queue %s to %t", queue, paused), err)
}
