// Package rate divides a rate limit among any number of workers.
//
// The limit is a sequence of slots, one per interval, that all workers share. SharedState is the first free slot. A worker takes the next
// few slots, and starts a job at each. This is the generic cell rate algorithm, except that workers take slots shortly before they begin
// (SlotLeadTime): a worker needs fewer requests, and no slot expires while workers compete for the state. The lead time is short, because
// a lowered limit does not affect taken slots.
//
// The package is pure: the caller stores SharedState and serializes its changes.
package rate

import "time"

// SlotLeadTime is how long before its time a slot can be taken.
const SlotLeadTime = 200 * time.Millisecond

// lateTolerance is how late a slot can be taken without a burst, because workers are always a little late, and would otherwise stay below
// the limit.
const lateTolerance = 100 * time.Millisecond

// maxClockError is how far two workers may disagree about the time of the server, which each has measured, without taking slots twice.
const maxClockError = time.Second

// Limit is one slot per interval.
type Limit struct {
	// Interval between two slots.
	Interval time.Duration
	// Burst is how many unused past slots can still be taken.
	Burst int
}

// SharedState is shared by all workers of a queue.
type SharedState struct {
	NextSlot time.Time `json:"next"`
}

// SlotGrant is the result of TakeSlots.
type SlotGrant struct {
	// Slots are the times at which jobs may start; empty if it is too early to take a slot.
	Slots []time.Time
	// State to store. It may differ from the previous state without Slots too, because an implausible time is corrected.
	State SharedState
	// RetryTime is when to try again if Slots is empty.
	RetryTime time.Time
}

// TakeSlots takes at most number slots.
func (l Limit) TakeSlots(state SharedState, now time.Time, number int) SlotGrant {
	next := state.NextSlot
	if oldest := now.Add(-max(lateTolerance, time.Duration(l.Burst-1)*l.Interval)); next.Before(oldest) {
		next = oldest
	}
	// A slot further ahead than another worker can have taken was taken under a slower limit, or with a wrong clock. Do not wait for it.
	if furthest := now.Add(SlotLeadTime + l.Interval + maxClockError); next.After(furthest) {
		next = furthest
	}
	g := SlotGrant{}
	for range number {
		if next.After(now.Add(SlotLeadTime)) {
			break
		}
		slot := next
		if slot.Before(now) {
			slot = now
		}
		g.Slots = append(g.Slots, slot)
		next = next.Add(l.Interval)
	}
	g.State = SharedState{NextSlot: next}
	if len(g.Slots) == 0 {
		g.RetryTime = next.Add(-SlotLeadTime)
	}
	return g
}

// SlotsPerRequest returns how many slots to take at once: the slots of 50 ms, so that several workers share each lead time.
func (l Limit) SlotsPerRequest() int { return max(1, int(50*time.Millisecond/l.Interval)) }
