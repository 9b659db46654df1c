package wrr

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func everyone(int) bool { return true }

// picks are how often each is picked in that many turns.
func picks(s *Shares, turns int, eligible func(int) bool) []int {
	picked := make([]int, len(s.weights))
	for range turns {
		if i := s.Next(eligible); i >= 0 {
			s.Take(i)
			picked[i]++
		}
	}
	return picked
}

func TestTurnsAreByWeight(t *testing.T) {
	for name, row := range map[string]struct {
		weights []int
		want    []int
	}{
		"alone":         {[]int{7}, []int{600}},
		"equal":         {[]int{1, 1}, []int{300, 300}},
		"three to one":  {[]int{3, 1}, []int{450, 150}},
		"three of them": {[]int{3, 2, 1}, []int{300, 200, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			got := picks(New(row.weights), 600, everyone)
			for i := range got {
				if got[i] < row.want[i]-1 || got[i] > row.want[i]+1 {
					t.Fatalf("picked %v, want %v", got, row.want)
				}
			}
		})
	}
}

func TestTheOneWithoutWorkIsNotPicked(t *testing.T) {
	s := New([]int{10, 1})
	if diff := cmp.Diff([]int{0, 100}, picks(s, 100, func(i int) bool { return i == 1 })); diff != "" {
		t.Errorf("picked (-want +got):\n%s", diff)
	}
	if got := s.Next(func(int) bool { return false }); got != -1 {
		t.Errorf("%d is picked where nobody has work", got)
	}
}

func TestTurnsThatWereMissedAreNotOwed(t *testing.T) {
	s := New([]int{1, 1})
	picks(s, 1000, func(i int) bool { return i == 0 })
	if got := picks(s, 10, everyone); got[0] < 4 {
		t.Errorf("then picked %v", got)
	}
}

func FuzzNobodyStarves(f *testing.F) {
	f.Add(uint64(1), 100, 1, 1)
	f.Fuzz(func(t *testing.T, seed uint64, a, b, c int) {
		weight := func(n int) int { return 1 + int(uint(n)%100) }
		weights := []int{weight(a), weight(b), weight(c)}
		sum := weights[0] + weights[1] + weights[2]
		s, random := New(weights), rand.New(rand.NewPCG(seed, 1))
		// At first some have work and some have not.
		picks(s, 500, func(int) bool { return random.IntN(3) == 0 })
		turns := 20 * sum
		for i, n := range picks(s, turns, everyone) {
			share := float64(turns) * float64(weights[i]) / float64(sum)
			if math.Abs(float64(n)-share) > 3+float64(sum)/float64(weights[i])/10 {
				t.Errorf("weight %d of %v is picked %d times of %d", weights[i], weights, n, turns)
			}
		}
	})
}
