package queue

import (
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Memory is what must be known of earlier figures. Who has none begins anew: rates and
// waits are then left out until there are two readings.
type Memory struct {
	Last  *broker.QueueStats
	Rates Rates
	Waits Waits
	// EmptySince there is nothing in the queue; zero while there is.
	EmptySince time.Time
}

// learn takes in figures that were just read. The time is the broker's, so that no
// clocks are compared.
func (m Memory) learn(f *broker.QueueStats) Memory {
	if m.Last == nil || f.TotalArrivals < m.Last.TotalArrivals || f.MeasuredTime.Before(m.Last.MeasuredTime) {
		m = Memory{} // the queue was made anew
	} else if elapsed := f.MeasuredTime.Sub(m.Last.MeasuredTime); elapsed > 0 {
		m.Rates = m.Rates.learn(m.Last, f, elapsed)
		m.Waits = m.Waits.learn(m.Last, f)
	}
	switch {
	case held(f) > 0:
		m.EmptySince = time.Time{}
	case m.EmptySince.IsZero():
		m.EmptySince = f.MeasuredTime
	}
	m.Last = f
	return m
}

// held is how many messages are in the queue.
func held(f *broker.QueueStats) int64 { return f.Ready + f.InFlight + f.Delayed }

// The times between two looks at a queue: often while something is done in it, more and
// more seldom while it is empty, for its first message is told of by the broker.
const (
	busyInterval    = 5 * time.Second
	delayedInterval = 15 * time.Second
	idleInterval    = time.Minute
)

// Interval is when to look at the queue again.
func (m Memory) Interval() time.Duration {
	switch {
	case m.Last == nil || m.Last.Ready+m.Last.InFlight > 0:
		return busyInterval
	case m.Last.Delayed > 0:
		return delayedInterval
	}
	return min(max(m.Last.MeasuredTime.Sub(m.EmptySince), busyInterval), idleInterval)
}

// Idle tells that no worker has or could have a message: who wants to know of the next
// one must have the broker tell.
func (m Memory) Idle() bool { return m.Last != nil && m.Last.Ready+m.Last.InFlight == 0 }
