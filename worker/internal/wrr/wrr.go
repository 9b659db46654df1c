// Package wrr implements weighted round robin over candidates that are not always eligible.
//
// It uses stride scheduling. Every candidate has a position; each turn moves the chosen candidate forward by a stride, which is inversely
// proportional to its weight, and the eligible candidate with the lowest position has the next turn. A candidate that was not eligible
// for some time does not catch up on the turns it missed.
package wrr

// strideUnit is divided by a candidate's weight to get its stride.
const strideUnit = 1 << 20

// RoundRobin selects among a fixed set of candidates by their index. It is not safe for concurrent use.
type RoundRobin struct {
	weights   []int
	positions []uint64
	// currentPosition is the position at which the last turn was taken.
	currentPosition uint64
}

// New returns a RoundRobin with one candidate for each weight. Weights below 1 count as 1.
func New(weights []int) *RoundRobin {
	return &RoundRobin{weights: weights, positions: make([]uint64, len(weights))}
}

// Next returns the eligible candidate whose turn it is, or -1 if no candidate is eligible. Call Advance to take the turn.
func (r *RoundRobin) Next(isEligible func(candidate int) bool) int {
	next := -1
	for candidate := range r.weights {
		if isEligible(candidate) && (next < 0 || r.effectivePosition(candidate) < r.effectivePosition(next)) {
			next = candidate
		}
	}
	return next
}

// Advance takes a turn for the candidate.
func (r *RoundRobin) Advance(candidate int) {
	r.currentPosition = r.effectivePosition(candidate)
	r.positions[candidate] = r.currentPosition + strideUnit/uint64(max(r.weights[candidate], 1))
}

// effectivePosition is never behind currentPosition: a candidate that was idle for long would otherwise get every turn until it had
// caught up.
func (r *RoundRobin) effectivePosition(candidate int) uint64 {
	return max(r.positions[candidate], r.currentPosition)
}
