package wrr

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func allEligible(int) bool { return true }

// countTurns takes that many turns and returns how many each candidate got.
func countTurns(r *RoundRobin, turns int, isEligible func(int) bool) []int {
	counts := make([]int, len(r.weights))
	for range turns {
		if candidate := r.Next(isEligible); candidate >= 0 {
			r.Advance(candidate)
			counts[candidate]++
		}
	}
	return counts
}

func TestIneligibleCandidatesGetNoTurn(t *testing.T) {
	r := New([]int{10, 1})
	require.Equal(t, []int{0, 100}, countTurns(r, 100, func(i int) bool { return i == 1 }))
	require.Equal(t, -1, r.Next(func(int) bool { return false }))
}

func TestMissedTurnsAreNotCaughtUp(t *testing.T) {
	r := New([]int{1, 1})
	countTurns(r, 1000, func(i int) bool { return i == 0 })
	got := countTurns(r, 10, allEligible)
	require.True(t, got[0] >= 4, "turns %v after the second candidate became eligible, want about 5 each", got)
}

func FuzzNoCandidateStarves(f *testing.F) {
	f.Add(uint64(1), 100, 1, 1)
	f.Add(uint64(2), 3, 2, 1)
	f.Add(uint64(3), 0, 0, 0)
	f.Fuzz(func(t *testing.T, seed uint64, a, b, c int) {
		weight := func(n int) int { return 1 + int(uint(n)%100) }
		weights := []int{weight(a), weight(b), weight(c)}
		sum := weights[0] + weights[1] + weights[2]
		r, random := New(weights), rand.New(rand.NewPCG(seed, 1))
		// Start with turns in which only some candidates are eligible.
		countTurns(r, 500, func(int) bool { return random.IntN(3) == 0 })
		turns := 20 * sum
		for i, n := range countTurns(r, turns, allEligible) {
			expected := float64(turns) * float64(weights[i]) / float64(sum)
			isFair := math.Abs(float64(n)-expected) <= 3+float64(sum)/float64(weights[i])/10
			require.True(t, isFair, "weight %d of %v got %d of %d turns", weights[i], weights, n, turns)
		}
	})
}
