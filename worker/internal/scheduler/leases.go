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
		if !m.isExtending && !m.isOverdue(now) && m.leaseAge(now) >= m.QueueConfig().Lease/extensionDivisor {
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

// StopExtendingAt ends the extension of the lease at the given time, so that the message goes to another worker.
func (m *LeasedMessage) StopExtendingAt(deadline time.Time) { m.deadline.Store(&deadline) }

func (m *LeasedMessage) isOverdue(now time.Time) bool {
	deadline := m.deadline.Load()
	return deadline != nil && !now.Before(*deadline)
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
