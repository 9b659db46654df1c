package scheduler

import (
	"time"

	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// extensionDivisor: a lease is extended after a third of it. Two extensions may then fail before the lease is lost.
const extensionDivisor = 3

// LeasesToExtend returns the messages whose lease has to be extended now, without overdue ones. Call LeaseExtended for each.
func (s *Scheduler) LeasesToExtend() []*LeasedMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var due []*LeasedMessage
	for m := range s.leased {
		if !m.isExtending && !m.isOverdue && m.leaseAge(now) >= m.QueueConfig().Lease/extensionDivisor {
			m.isExtending = true
			due = append(due, m)
		}
	}
	return due
}

// LeaseExtended records whether a lease was extended. The new lease starts when the request was sent.
func (s *Scheduler) LeaseExtended(m *LeasedMessage, sentAt time.Time, succeeded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.isExtending = false
	if succeeded {
		m.extendedAt.Store(&sentAt)
	}
}

// MarkOverdue records that a running job has exceeded its time. Its lease is no longer extended, so that another worker receives the
// message, and draining does not wait for it.
func (s *Scheduler) MarkOverdue(m *LeasedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isLeased := s.leased[m]; !isLeased || m.isOverdue {
		return
	}
	m.isOverdue = true
	s.overdue++
	s.endSuspicion(m)
	s.capacityFreed.Broadcast()
}

// IsLeaseLost reports whether the lease had expired at the given time. The broker may have delivered the message to another worker.
func (m *LeasedMessage) IsLeaseLost(now time.Time) bool {
	return m.leaseAge(now) >= m.QueueConfig().Lease
}

// leaseAge returns the time since the lease was acquired or last extended.
func (m *LeasedMessage) leaseAge(now time.Time) time.Duration {
	if extended := m.extendedAt.Load(); extended != nil {
		return now.Sub(*extended)
	}
	return now.Sub(m.receivedAt)
}

const (
	// UpdateInterval is the time between two calls of UpdatePrefetch.
	UpdateInterval = 100 * time.Millisecond
	// maxIdlePrefetch is how long a message that cannot start stays prefetched, before it returns to the broker for another worker.
	maxIdlePrefetch = 2 * time.Second
)

// UpdatePrefetch begins an update interval and gives back messages that have waited for too long. Call it every UpdateInterval.
func (s *Scheduler) UpdatePrefetch() {
	s.mu.Lock()
	s.endedBefore, s.endedSinceUpdate = s.endedSinceUpdate, 0
	s.releaseAndUnlock(s.unusedMessages())
}

// unusedMessages returns the prefetched messages whose queue's breaker is open, and messages that have waited for too long for an
// executor, for a more urgent priority or for their kind.
func (s *Scheduler) unusedMessages() []*LeasedMessage {
	var unused []*LeasedMessage
	now := s.now()
	for _, kind := range s.kinds {
		kind.next = 0
	}
	for _, q := range s.queues {
		isOpen := q.breaker.State(now) == breaker.Open
		for _, b := range q.Buffers {
			isBlocked := s.running >= s.limits.Concurrency || b.isOutranked()
			for _, m := range b.messages {
				isUnused := isBlocked && now.Sub(m.receivedAt) > maxIdlePrefetch
				if !m.mayStart() {
					isUnused = m.waitsInVain(now)
				}
				if isOpen || isUnused {
					unused = append(unused, m)
				}
			}
		}
	}
	return unused
}

// releaseAndUnlock removes the messages from their buffers, unlocks, and gives them back.
func (s *Scheduler) releaseAndUnlock(messages []*LeasedMessage) {
	for _, m := range messages {
		s.removePrefetched(m)
		q := m.buffer.queue
		q.openSlots = min(q.openSlots, q.prefetched)
	}
	s.releasing += len(messages)
	s.wakeAllWaiters()
	s.mu.Unlock()
	for _, m := range messages {
		s.release(m)
	}
}

// MarkReleased records that a message was given back.
func (s *Scheduler) MarkReleased(m *LeasedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releasing--
	delete(s.leased, m)
	s.wakeAllWaiters()
}

// Drain stops taking messages and gives back prefetched messages. Running jobs continue.
func (s *Scheduler) Drain() {
	s.mu.Lock()
	s.draining.Store(true)
	s.releaseAndUnlock(prefetchedMessages(s.queues))
}

// Resume takes messages again after Drain.
func (s *Scheduler) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(false)
	s.wakeAllWaiters()
}

// Hold stops taking messages and starting jobs, as Drain does, or ends that. It is independent of draining, which the operator requests:
// neither ends the other. Jobs that run continue.
func (s *Scheduler) Hold(held bool) {
	s.mu.Lock()
	if s.held == held {
		s.mu.Unlock()
		return
	}
	s.held = held
	var messages []*LeasedMessage
	if held {
		messages = prefetchedMessages(s.queues)
	}
	s.releaseAndUnlock(messages)
}

// RetireQueues stops taking messages of the queues and gives back their prefetched messages. Running jobs continue.
func (s *Scheduler) RetireQueues(queues []*ScheduledQueue) {
	s.mu.Lock()
	for _, q := range queues {
		q.retired = true
	}
	s.releaseAndUnlock(prefetchedMessages(queues))
}

func prefetchedMessages(queues []*ScheduledQueue) []*LeasedMessage {
	var messages []*LeasedMessage
	for _, q := range queues {
		for _, b := range q.Buffers {
			messages = append(messages, b.messages...)
		}
	}
	return messages
}

// Close ends all waiting: NextMessage, NextRequest and NextReservation return.
func (s *Scheduler) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wakeAllWaiters()
}
