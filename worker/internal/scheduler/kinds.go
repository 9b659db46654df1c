package scheduler

import (
	"time"
)

// A job of a kind with a limit waits in its buffer while as many jobs of the kind run as may run at a time. Jobs of other
// kinds overtake it. It holds no executor, and its lease is extended like that of other prefetched messages.
//
// A queue may have any number of such jobs before the first one of another kind. To find that one, the worker fetches up
// to maxHeldForKinds messages more than it could run, and gives back those that wait for long, with a delay: without it,
// the broker would deliver them again before the messages behind them.

const (
	// maxHeldForKinds bounds the messages that wait for their kind, and that are fetched in addition to others.
	maxHeldForKinds = 128
	// maxIdleNext is how long a message waits that starts when the next job of its kind ends. It bounds the time for
	// which another worker could run it.
	maxIdleNext = 15 * time.Second
	// minReturnDelay and maxReturnDelay bound the delay until the broker delivers a message again that waited for its
	// kind. The longer it is, the more messages are behind those that the worker has given back.
	minReturnDelay, maxReturnDelay = 5 * time.Second, time.Minute
	// durationWeight is the weight of the latest job in the mean duration of its kind: 1 of durationWeight.
	durationWeight = 8
)

// kindLimit is the state of a kind with a limit. Its fields are guarded by the Scheduler's lock.
type kindLimit struct {
	// limit is the number of jobs that may run at a time, and running the number of those that do.
	limit, running int
	// meanDuration of jobs that ended; 0 if none has. lastStart is when the last one started.
	meanDuration time.Duration
	lastStart    time.Time
	// lastReturn is when the broker delivers the last message again that was given back.
	lastReturn time.Time
	// next is the number of messages that the current call of unusedMessages keeps to start next.
	next int
}

// SetKindLimits sets how many jobs of each kind may run at a time. Kinds without a limit are not in the map. Call it
// before the first message is added.
func (s *Scheduler) SetKindLimits(limits map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = make(map[string]*kindLimit, len(limits))
	for kind, limit := range limits {
		s.kinds[kind] = &kindLimit{limit: limit}
	}
}

// free is the number of jobs of the kind that may start.
func (k *kindLimit) free() int { return max(0, k.limit-k.running) }

func (k *kindLimit) finish(duration time.Duration) {
	k.running--
	if k.meanDuration == 0 {
		k.meanDuration = duration
		return
	}
	k.meanDuration += (duration - k.meanDuration) / durationWeight
}

// returnDelay returns the delay of the next message to give back. Messages return one after the other, at the rate at
// which jobs of the kind end, because one that returns earlier would wait again.
func (k *kindLimit) returnDelay(now time.Time) time.Duration {
	duration := max(k.meanDuration, now.Sub(k.lastStart)) // a running job takes at least as long as it has run
	next := k.lastReturn.Add(duration / time.Duration(k.limit))
	delay := min(max(next.Sub(now), minReturnDelay), maxReturnDelay)
	k.lastReturn = now.Add(delay)
	return delay
}

// mayStart reports whether the kind of the message lets it start.
func (m *LeasedMessage) mayStart() bool { return m.kind == nil || m.kind.free() > 0 }

// heldForKinds is the number of messages of the buffer that wait for their kind.
func (b *PriorityBuffer) heldForKinds() int {
	sum := 0
	for kind, messages := range b.byKind {
		sum += max(0, messages-kind.free())
	}
	return sum
}

// startable is the number of messages of the buffer that do not wait for their kind.
func (b *PriorityBuffer) startable() int { return len(b.messages) - b.heldForKinds() }

// startable is the number of prefetched messages of the queue that do not wait for their kind.
func (q *ScheduledQueue) startable() int {
	sum := 0
	for _, b := range q.Buffers {
		sum += b.startable()
	}
	return sum
}

// heldForKinds returns the number of prefetched messages that wait for their kind.
func (s *Scheduler) heldForKinds() int {
	if len(s.kinds) == 0 {
		return 0
	}
	sum := 0
	for _, q := range s.queues {
		for _, b := range q.Buffers {
			sum += b.heldForKinds()
		}
	}
	return sum
}

// waitsInVain reports whether a message that waits for its kind has done so for too long, and sets the delay with which
// to give it back.
func (m *LeasedMessage) waitsInVain(now time.Time) bool {
	maxIdle := maxIdlePrefetch
	m.kind.next++
	if m.kind.next <= m.kind.limit {
		maxIdle = maxIdleNext
	}
	if now.Sub(m.receivedAt) <= maxIdle {
		return false
	}
	m.releaseDelay = m.kind.returnDelay(now)
	return true
}
