// Package share picks whose turn it is among several that have work, by weight.
//
// It is stride scheduling: each pick costs the one that is picked a step, the smaller the
// greater its weight, and the turn is that of the one who is the least far. One that had
// no work is not owed the turns it missed.
package wrr

// stride is divided by a weight to be its step.
const stride = 1 << 20

// Shares are the standing of a number of takers.
type Shares struct {
	weights []int
	passed  []uint64
	// now is how far the last one was that was picked.
	now uint64
}

// New makes shares of those weights, each at least 1.
func New(weights []int) *Shares {
	return &Shares{weights: weights, passed: make([]uint64, len(weights))}
}

// Next is whose turn it is among those that are eligible, or -1.
func (s *Shares) Next(eligible func(int) bool) int {
	next := -1
	for i := range s.weights {
		if eligible(i) && (next < 0 || s.at(i) < s.at(next)) {
			next = i
		}
	}
	return next
}

// Take is told that one was picked.
func (s *Shares) Take(i int) {
	s.now = s.at(i)
	s.passed[i] = s.now + stride/uint64(max(s.weights[i], 1))
}

// at is how far one is: no less far than the one picked last, lest it be owed turns that
// it had no use for.
func (s *Shares) at(i int) uint64 { return max(s.passed[i], s.now) }
