package scheduler

import "time"

// extensionDivisor: a lease is extended once this part of it has passed. Two extensions may
// then fail before the lease is lost.
const extensionDivisor = 3

// LeasesToExtend returns the messages whose lease has to be extended now, except those of jobs that exceeded their
// time. Call LeaseExtended for each of them.
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

// LeaseExtended records whether a lease was extended. The new lease counts from when the
// request was sent.
func (s *Scheduler) LeaseExtended(m *LeasedMessage, sentAt time.Time, succeeded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.isExtending = false
	if succeeded {
		m.extendedAt.Store(&sentAt)
	}
}

// MarkOverdue records that a running job has exceeded its time. Its lease is no longer extended, so that the
// message goes to another worker, and draining does not wait for it.
func (s *Scheduler) MarkOverdue(m *LeasedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isLeased := s.leased[m]; !isLeased || m.isOverdue {
		return
	}
	m.isOverdue = true
	s.overdue++
	s.capacityFreed.Broadcast()
}

// IsLeaseLost reports whether the lease had expired at the given time. The broker may have
// delivered the message to another worker since.
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
