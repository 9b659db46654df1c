// Package rate divides a rate limit's time among any number of workers.
//
// The limit is a line of slots, one each Interval, that all workers share: State is how
// much of the line is taken. A worker takes the next few slots, and begins a job at each.
// It is the generic cell rate algorithm, with the one change that slots are taken a little
// before they come (Lead): so a worker need not ask for each, and no slot passes by while
// workers take turns at asking. They may not be taken long before, or a limit that is
// lowered would have no effect on what is already taken.
//
// It is pure: whoever keeps the State sees to it that it is changed by one at a time.
package rate

import "time"

// SlotLeadTime is how long before it comes a slot can be taken.
const SlotLeadTime = 200 * time.Millisecond

// lateTolerance is how late a slot can still be taken without any burst: workers are never quite
// in time, and what they lose by that would add up.
const lateTolerance = 100 * time.Millisecond

// RateLimit is a rate limit.
type RateLimit struct {
	// Interval between two slots.
	Interval time.Duration
	// Burst is how many slots that passed unused can still be taken.
	Burst int
}

// SharedState is the time of the next slot that nobody has taken.
type SharedState struct {
	NextSlot time.Time `json:"next"`
}

// SlotGrant is what a worker is given.
type SlotGrant struct {
	// Slots are the times at which jobs may begin; none if it is too early to take one.
	Slots []time.Time
	// State to keep, if it is another than before: also where there are no Slots, for a time
	// that was not to be believed is put right.
	State SharedState
	// RetryTime is when to ask again, if there are no Slots.
	RetryTime time.Time
}

// TakeSlots takes at most number slots.
func (l RateLimit) TakeSlots(state SharedState, now time.Time, number int) SlotGrant {
	next := state.NextSlot
	if oldest := now.Add(-max(lateTolerance, time.Duration(l.Burst-1)*l.Interval)); next.Before(oldest) {
		next = oldest
	}
	// A time that is further ahead than any slot ever taken was written under a slower
	// limit, or by a clock that is wrong: it is not waited for.
	if furthest := now.Add(SlotLeadTime + l.Interval); next.After(furthest) {
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

// SlotsPerRequest is how many slots are worth asking for at once: those of a twentieth of a second,
// so that a few workers share each Lead.
func (l RateLimit) SlotsPerRequest() int { return max(1, int(50*time.Millisecond/l.Interval)) }
