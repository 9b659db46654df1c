package scheduler

import "time"

// A job of a kind with a limit waits in its buffer while the maximum number of jobs of the kind run. Jobs of other kinds overtake it.
// It holds no executor, and its lease is extended as for other prefetched messages.
//
// A queue may have any number of such jobs before the first job of another kind. To find that job, the worker fetches up to
// maxHeldForKinds more messages than it could run, and gives back messages that wait for long. It does so with a delay, because the
// broker would otherwise deliver them again before the messages behind them.

const (
	// maxHeldForKinds bounds the messages that are fetched in addition because others wait for their kind.
	maxHeldForKinds = 128
	// maxIdleNext is how long a message waits that starts when the next job of its kind ends. Meanwhile, another worker could run it.
	maxIdleNext = 15 * time.Second
	// minReturnDelay and maxReturnDelay bound the delay until the broker redelivers a message that waited for its kind. With a longer
	// delay, the worker reaches messages further behind.
	minReturnDelay, maxReturnDelay = 5 * time.Second, time.Minute
	// durationWeight: the latest job has 1/durationWeight of the weight in the mean duration of its kind.
	durationWeight = 8
)

// kindLimit is the state of a kind with a limit. Its fields are guarded by the Scheduler's lock.
type kindLimit struct {
	// limit is the number of jobs that may run at a time, and running the number of running jobs.
	limit, running int
	// meanDuration of jobs that ended; 0 if no job has ended. lastStart is when the last job started.
	meanDuration time.Duration
	lastStart    time.Time
	// lastReturn is when the broker redelivers the last message that was given back.
	lastReturn time.Time
	// next is the number of waiting messages that the current call of unusedMessages has counted.
	next int
}

// SetKindLimits sets how many jobs of each kind may run at a time; other kinds have no limit. Call it before the first message is added.
func (s *Scheduler) SetKindLimits(limits map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = make(map[string]*kindLimit, len(limits))
	for kind, limit := range limits {
		s.kinds[kind] = &kindLimit{limit: limit}
	}
}

func (m *LeasedMessage) mayStart() bool { return m.kind == nil || m.kind.running < m.kind.limit }

// startable is the number of messages of the buffer that do not wait for their kind.
func (b *PriorityBuffer) startable() int {
	number := len(b.messages)
	for kind, messages := range b.byKind {
		number -= max(0, messages-max(0, kind.limit-kind.running))
	}
	return number
}

// startable is the number of prefetched messages of the queue that do not wait for their kind.
func (q *ScheduledQueue) startable() int {
	sum := 0
	for _, b := range q.Buffers {
		sum += b.startable()
	}
	return sum
}

// heldForKinds is the number of prefetched messages that wait for their kind.
func (s *Scheduler) heldForKinds() int {
	if len(s.kinds) == 0 {
		return 0
	}
	sum := 0
	for _, q := range s.queues {
		for _, b := range q.Buffers {
			sum += len(b.messages) - b.startable()
		}
	}
	return sum
}

// waitsInVain reports whether a message has waited for its kind for too long, and sets the delay with which to give it back. Messages
// return one after the other, at the rate at which jobs of the kind end, because a message that returns earlier would wait again.
func (m *LeasedMessage) waitsInVain(now time.Time) bool {
	k, maxIdle := m.kind, maxIdlePrefetch
	k.next++
	if k.next <= k.limit {
		maxIdle = maxIdleNext
	}
	if now.Sub(m.receivedAt) <= maxIdle {
		return false
	}
	duration := max(k.meanDuration, now.Sub(k.lastStart)) // a running job takes at least as long as it has run
	next := k.lastReturn.Add(duration / time.Duration(k.limit))
	m.releaseDelay = min(max(next.Sub(now), minReturnDelay), maxReturnDelay)
	k.lastReturn = now.Add(m.releaseDelay)
	return true
}
