package scheduler

import "time"

// A slot is the permission to start a job of a queue under the queue's rate limit. The broker assigns slots, each with the time at which
// it opens.

const (
	// shortSlotWait: if the next slot opens sooner, the queue prefetches too few messages for its rate limit.
	shortSlotWait = 50 * time.Millisecond
	// longSlotWait: if the next slot opens later, the queue prefetches too many messages for its rate limit.
	longSlotWait = 250 * time.Millisecond
)

// NextReservation waits until prefetched messages of the queue need slots, and returns the number of slots to reserve. It returns false
// when the queue needs no more slots for good.
func (s *Scheduler) NextReservation(q *ScheduledQueue) (slots int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed || q.retired:
			return 0, false
		case !q.isRateLimited() || q.startable() == 0:
			// Slots are not kept for messages that arrive later, because they could then start in a burst.
			q.openSlots = 0
		case q.startable() > q.openSlots+q.pendingSlots:
			return q.startable() - q.openSlots - q.pendingSlots, true
		}
		s.slotsNeeded.Wait()
	}
}

// SlotsReserved records slots that the broker assigned, the first of which opens after wait. After a short wait, the queue prefetches
// more messages, after a long wait fewer.
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

// OpenSlots opens reserved slots, so that as many jobs of the queue may start.
func (s *Scheduler) OpenSlots(q *ScheduledQueue, slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.pendingSlots -= slots
	q.openSlots += slots
	s.messageAvailable.Broadcast()
}
