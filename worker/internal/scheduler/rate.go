package scheduler

import "time"

// A slot is the permission to start one job of a queue under the queue's rate limit. The
// broker assigns slots; each has a time at which it becomes open.

const (
	// shortSlotWait: if the next slot comes sooner, the rate limit allows more messages than
	// are prefetched.
	shortSlotWait = 50 * time.Millisecond
	// longSlotWait: if the next slot comes later, more messages are prefetched than the rate
	// limit allows to start soon.
	longSlotWait = 250 * time.Millisecond
)

// NextReservation waits until prefetched messages of the queue need slots, and returns the
// number of slots to reserve. It returns false when the queue needs no more slots for good.
func (s *Scheduler) NextReservation(q *ScheduledQueue) (slots int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed || q.retired:
			return 0, false
		case !q.isRateLimited() || q.startable() == 0:
			// Slots are not kept for messages that arrive later: those could then start in a
			// burst.
			q.openSlots = 0
		case q.startable() > q.openSlots+q.pendingSlots:
			return q.startable() - q.openSlots - q.pendingSlots, true
		}
		s.slotsNeeded.Wait()
	}
}

// SlotsReserved records slots that the broker assigned, the first of which opens after wait.
// Depending on the wait, the queue prefetches more or fewer messages.
func (s *Scheduler) SlotsReserved(q *ScheduledQueue, slots int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.pendingSlots += slots
	switch {
	case wait < shortSlotWait:
		q.slotPrefetch = min(q.slotPrefetch*2, s.limits.MaxInFlight)
	case wait > longSlotWait:
		q.slotPrefetch = max(1, q.slotPrefetch/2)
	}
	s.capacityFreed.Broadcast()
}

// OpenSlots lets that many jobs of the queue start. The slots must have been reserved.
func (s *Scheduler) OpenSlots(q *ScheduledQueue, slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.pendingSlots -= slots
	q.openSlots += slots
	s.messageAvailable.Broadcast()
}
