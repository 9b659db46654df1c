package asynq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// countScript reads all counts atomically. The producer computes when a delayed task is due,
// so the time comes from a client, not from the server.
const countScript = `
local oldest = redis.call("LINDEX", KEYS[1], -1)
local since = oldest and redis.call("HGET", ARGV[2] .. oldest, "pending_since")
local function first(key)
	return redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2] or ""
end
return {
	redis.call("TIME")[1], redis.call("TIME")[2],
	redis.call("LLEN", KEYS[1]), redis.call("LLEN", KEYS[2]),
	redis.call("ZCARD", KEYS[3]), redis.call("ZCOUNT", KEYS[3], "-inf", ARGV[1]),
	redis.call("ZCARD", KEYS[4]), redis.call("ZCOUNT", KEYS[4], "-inf", ARGV[1]),
	redis.call("ZCARD", KEYS[5]),
	redis.call("GET", KEYS[6]) or 0, redis.call("GET", KEYS[7]) or 0,
	since or "", first(KEYS[3]), first(KEYS[4]),
}`

// queueCounts is the reply of countScript, in that order.
type queueCounts struct {
	seconds, micros                            int64
	pending, active                            int64
	scheduled, dueScheduled, retried, dueRetry int64
	archived                                   int64
	processed, failed                          int64
	// since is when the oldest pending task became pending, in nanoseconds; nextScheduled and
	// nextRetry are when the first of each is due, in seconds. 0: no such task.
	since, nextScheduled, nextRetry int64
}

// Stats implements broker.Engine with one request. A due task counts as ready, because only
// workers move it to the pending list. A task that waits for a retry counts as delayed,
// because no worker holds it.
func (e *Engine) Stats(ctx context.Context, queue string) (broker.QueueStats, error) {
	c, err := e.readCounts(ctx, queue)
	if err != nil {
		return broker.QueueStats{}, queueError("reading the stats of", queue, err)
	}
	return broker.QueueStats{
		Ready:           c.readyCount(),
		InFlight:        c.active,
		Delayed:         c.scheduled + c.retried - c.dueScheduled - c.dueRetry,
		DeadLetters:     c.archived,
		OldestReadyTime: c.oldestReadyTime(),
		TotalArrivals:   e.countArrivals(queue, c.knownTotal()),
		MeasuredTime:    time.Unix(c.seconds, c.micros*int64(time.Microsecond)),
	}, nil
}

func (e *Engine) readCounts(ctx context.Context, queue string) (*queueCounts, error) {
	var known *goredis.BoolCmd
	var told *goredis.Cmd
	_, err := e.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		known = p.SIsMember(ctx, queuesKey, queue)
		told = p.Eval(ctx, countScript, []string{
			pendingKey(queue), activeKey(queue), scheduledKey(queue), retryKey(queue), archivedKey(queue), processedKey(queue), failedKey(queue),
		}, time.Now().Unix(), taskKey(queue, ""))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !known.Val() {
		return nil, queueNotFound(queue)
	}
	values, err := told.Slice()
	if err != nil {
		return nil, err
	}
	return parseQueueCounts(values)
}

func parseQueueCounts(values []any) (*queueCounts, error) {
	c := &queueCounts{}
	into := []*int64{
		&c.seconds, &c.micros, &c.pending, &c.active, &c.scheduled, &c.dueScheduled, &c.retried, &c.dueRetry, &c.archived,
		&c.processed, &c.failed, &c.since, &c.nextScheduled, &c.nextRetry,
	}
	if len(values) != len(into) {
		return nil, fmt.Errorf("the server returned %d numbers, want %d", len(values), len(into))
	}
	for i, value := range values {
		text := fmt.Sprint(value)
		if text == "" {
			continue
		}
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the server returned %q, which is not a number", text)
		}
		*into[i] = number
	}
	return c, nil
}

func (c *queueCounts) readyCount() int64 { return c.pending + c.dueScheduled + c.dueRetry }

// oldestReadyTime returns when the oldest ready task became ready.
func (c *queueCounts) oldestReadyTime() time.Time {
	var oldest time.Time
	consider := func(is bool, at time.Time) {
		if is && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	consider(c.since > 0, time.Unix(0, c.since))
	consider(c.dueScheduled > 0, time.Unix(c.nextScheduled, 0))
	consider(c.dueRetry > 0, time.Unix(c.nextRetry, 0))
	return oldest
}

// nextDueTime returns when the next delayed task is due; zero if none exists.
func (c *queueCounts) nextDueTime() time.Time {
	next := c.nextScheduled
	if next == 0 || c.nextRetry > 0 && c.nextRetry < next {
		next = c.nextRetry
	}
	if next == 0 {
		return time.Time{}
	}
	return time.Unix(next, 0)
}

// knownTotal returns the number of existing and completed tasks. asynq counts a failure as
// processed too. The number decreases when someone deletes tasks.
func (c *queueCounts) knownTotal() int64 {
	return c.processed - c.failed + c.pending + c.active + c.scheduled + c.retried + c.archived
}

// arrivalCounter turns a number that may decrease into one that does not.
type arrivalCounter struct {
	lastKnownTotal int64
	totalArrivals  uint64
}

func (e *Engine) countArrivals(queue string, knownTotal int64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	counter, found := e.arrivalCounters[queue]
	if !found {
		counter = &arrivalCounter{}
		e.arrivalCounters[queue] = counter
	}
	if grown := knownTotal - counter.lastKnownTotal; grown > 0 {
		counter.totalArrivals += uint64(grown)
	}
	counter.lastKnownTotal = knownTotal
	return counter.totalArrivals
}

const (
	// pollInterval is how long Wait relies on being woken: a task that is sent to be taken a
	// little later wakes nobody.
	pollInterval = 4 * time.Second
	// minWait time to wait for: a delayed task may become due by the second only.
	minWait = 100 * time.Millisecond
)

// WaitForMessage implements broker.Engine.
func (e *Engine) WaitForMessage(ctx context.Context, queue string) error {
	woken := make(chan error, 1)
	go func() { woken <- e.waitForReadyTask(ctx, queue) }()
	select {
	case err := <-woken:
		return err
	case <-ctx.Done():
		// The request in progress ends by itself.
		return ctx.Err()
	}
}

func (e *Engine) waitForReadyTask(ctx context.Context, queue string) error {
	// Requests end soon by themselves, and would report the end of ctx as a failure.
	asking := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		c, err := e.readCounts(asking, queue)
		if err == nil && c.readyCount() == 0 {
			wait := pollInterval
			if next := c.nextDueTime(); !next.IsZero() {
				wait = min(wait, max(time.Until(next), minWait))
			}
			var there bool
			if there, err = e.waitForPending(asking, queue, wait); err == nil && !there {
				continue
			}
		}
		return queueError("waiting for", queue, err)
	}
	return ctx.Err()
}

// waitForPending waits for a pending task, without taking it: it moves the oldest task to
// the same end of the list.
func (e *Engine) waitForPending(ctx context.Context, queue string, wait time.Duration) (bool, error) {
	err := e.blockingClient.Do(ctx, "blmove", pendingKey(queue), pendingKey(queue), "right", "right", wait.Seconds()).Err()
	if err == goredis.Nil { //nolint:errorlint // it is never wrapped
		return false, nil
	}
	return err == nil, err
}
