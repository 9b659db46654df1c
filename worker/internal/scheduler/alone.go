package scheduler

import "time"

// A suspect is a message whose earlier deliveries ended with their process. It runs without other messages in the process, so that it takes
// none along: the worker gives back what it has prefetched, requests nothing, and starts no other job until the suspect has ended.

// RunAlone waits until a message that the caller is about to run is the only one of this worker. It returns false if the worker drains, has
// another suspect, or if the running jobs do not end within patience: the caller then gives the message back, because another worker may
// have no jobs.
func (s *Scheduler) RunAlone(m *LeasedMessage, patience time.Duration) bool {
	s.mu.Lock()
	if s.suspect != nil {
		s.mu.Unlock()
		return false
	}
	s.suspect = m
	s.releaseAndUnlock(prefetchedMessages(s.queues))

	isLate := false
	timer := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		isLate = true
		s.capacityFreed.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running-s.overdue > 1 || s.prefetched+s.releasing+s.activeRequests > 0 {
		if isLate || s.draining.Load() || s.held || s.closed || m.buffer.queue.retired {
			s.endSuspicion(m)
			return false
		}
		s.capacityFreed.Wait()
	}
	return true
}

// endSuspicion lets other jobs start after a suspect. The caller holds the lock.
func (s *Scheduler) endSuspicion(m *LeasedMessage) {
	if s.suspect == m {
		s.suspect = nil
		s.wakeAllWaiters()
	}
}
