package asynq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// countScript reads all counts atomically. The producer computes when a delayed task is due, so ARGV has the time of a client.
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

// queueCounts is the reply of countScript, in the same order.
type queueCounts struct {
	seconds, micros                            int64
	pending, active                            int64
	scheduled, dueScheduled, retried, dueRetry int64
	archived                                   int64
	processed, failed                          int64
	// since is when the oldest pending task became pending, in nanoseconds; nextScheduled and nextRetry are when the first
	// scheduled task and the first retry are due, in seconds. 0: no such task.
	since, nextScheduled, nextRetry int64
}

// Stats implements broker.Engine with one request. A due task counts as ready, because only workers move it to the pending
// list. A task that waits for a retry counts as delayed, because no worker holds it.
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
		TotalArrivals:   e.countArrivals(queue, c),
		MeasuredTime:    time.Unix(c.seconds, c.micros*int64(time.Microsecond)),
	}, nil
}

func (e *Engine) readCounts(ctx context.Context, queue string) (*queueCounts, error) {
	var keys []string
	for _, key := range []string{pendingList, activeList, scheduledSet, retrySet, archivedSet, processedCount, failedCount} {
		keys = append(keys, queueKey(queue, key))
	}
	var known *goredis.BoolCmd
	var reply *goredis.Cmd
	_, err := e.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		known = p.SIsMember(ctx, queuesKey, queue)
		reply = p.Eval(ctx, countScript, keys, time.Now().Unix(), taskKey(queue, ""))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !known.Val() {
		return nil, queueNotFound(queue)
	}
	values, err := reply.Slice()
	if err != nil {
		return nil, err
	}
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
		if *into[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("the server returned %q, which is not a number", text)
		}
	}
	return c, nil
}

func (c *queueCounts) readyCount() int64 { return c.pending + c.dueScheduled + c.dueRetry }

func (c *queueCounts) oldestReadyTime() time.Time {
	var oldest time.Time
	consider := func(exists bool, at time.Time) {
		if exists && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	consider(c.since > 0, time.Unix(0, c.since))
	consider(c.dueScheduled > 0, time.Unix(c.nextScheduled, 0))
	consider(c.dueRetry > 0, time.Unix(c.nextRetry, 0))
	return oldest
}

// arrivalCounter turns a number that may decrease into one that does not.
type arrivalCounter struct {
	lastKnownTotal int64
	totalArrivals  uint64
}

func (e *Engine) countArrivals(queue string, c *queueCounts) uint64 {
	// knownTotal is the number of existing and completed tasks. asynq counts a failure as processed too. The number decreases
	// when someone deletes tasks.
	knownTotal := c.processed - c.failed + c.pending + c.active + c.scheduled + c.retried + c.archived
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
	// pollInterval bounds a wait for a pending task, because a delayed task that is sent meanwhile does not end the wait when it
	// is due.
	pollInterval = 4 * time.Second
	// minWait is the minimum wait for a delayed task, which can be due in the current second.
	minWait = 100 * time.Millisecond
)

// WaitForMessage implements broker.Engine.
func (e *Engine) WaitForMessage(ctx context.Context, queue string) error {
	ready := make(chan error, 1)
	go func() {
		// Requests end soon by themselves, and would report the end of ctx as a failure.
		requests := context.WithoutCancel(ctx)
		for ctx.Err() == nil {
			c, err := e.readCounts(requests, queue)
			isReady := err != nil || c.readyCount() > 0
			if !isReady {
				wait := pollInterval
				for _, due := range []int64{c.nextScheduled, c.nextRetry} {
					if due > 0 {
						wait = min(wait, max(time.Until(time.Unix(due, 0)), minWait))
					}
				}
				isReady, err = e.waitForPending(requests, queue, wait)
			}
			if isReady || err != nil {
				ready <- queueError("waiting for", queue, err)
				return
			}
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return ctx.Err() // the request in progress ends by itself
	}
}

// waitForPending waits for a pending task without taking it: it moves the oldest task to the same end of the list.
func (e *Engine) waitForPending(ctx context.Context, queue string, wait time.Duration) (bool, error) {
	pending := queueKey(queue, pendingList)
	err := e.blockingClient.Do(ctx, "blmove", pending, pending, "right", "right", wait.Seconds()).Err()
	if err == goredis.Nil { //nolint:errorlint // it is never wrapped
		return false, nil
	}
	return err == nil, err
}
