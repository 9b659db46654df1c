package queue

import (
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// History is what the next reconciliation of a Queue has to know. It is kept in memory only:
// after a restart of the operator it is empty.
type History struct {
	Stats      StatsHistory
	Comparison Comparison
}

// StatsHistory derives rates and latencies from successive stats. They are unknown until stats
// were read twice.
type StatsHistory struct {
	Last    *broker.QueueStats
	Rates   Rates
	Latency LatencySamples
	// EmptySince is since when the queue is empty; zero while it is not.
	EmptySince time.Time
}

// add returns the history with new stats. It compares only times of the broker's clock.
func (h StatsHistory) add(stats *broker.QueueStats) StatsHistory {
	if h.Last == nil || stats.TotalArrivals < h.Last.TotalArrivals || stats.MeasuredTime.Before(h.Last.MeasuredTime) {
		h = StatsHistory{} // the queue was created again
	} else if elapsed := stats.MeasuredTime.Sub(h.Last.MeasuredTime); elapsed > 0 {
		h.Rates = h.Rates.add(h.Last, stats, elapsed)
		h.Latency = h.Latency.add(h.Last, stats)
	}
	switch {
	case messageCount(stats) > 0:
		h.EmptySince = time.Time{}
	case h.EmptySince.IsZero():
		h.EmptySince = stats.MeasuredTime
	}
	h.Last = stats
	return h
}

// messageCount returns the number of messages in the queue, dead letters aside.
func messageCount(stats *broker.QueueStats) int64 {
	return stats.Ready + stats.InFlight + stats.Delayed
}

// The intervals between two reads of the stats. An empty queue is read less and less often,
// because the broker reports its next message.
const (
	busyInterval    = 5 * time.Second
	delayedInterval = 15 * time.Second
	idleInterval    = time.Minute
)

// interval returns when to read the stats again.
func (h StatsHistory) interval() time.Duration {
	switch {
	case h.Last == nil || h.Last.Ready+h.Last.InFlight > 0:
		return busyInterval
	case h.Last.Delayed > 0:
		return delayedInterval
	}
	return min(max(h.Last.MeasuredTime.Sub(h.EmptySince), busyInterval), idleInterval)
}

// isIdle reports whether no message is ready or in flight.
func (h StatsHistory) isIdle() bool { return h.Last != nil && h.Last.Ready+h.Last.InFlight == 0 }
