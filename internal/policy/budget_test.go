package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShare(t *testing.T) {
	for title, test := range map[string]struct {
		total  int32
		claims []Claim
		want   map[string]int32
	}{
		"what fits, all have": {
			10, []Claim{{Name: "a", Want: 4}, {Name: "b", Want: 6}}, map[string]int32{"a": 4, "b": 6},
		},
		"what is free goes by priority": {
			10, []Claim{{Name: "a", Want: 8}, {Name: "b", Priority: 1, Want: 8}}, map[string]int32{"a": 2, "b": 8},
		},
		"of equal priority, the first by name": {
			10, []Claim{{Name: "b", Want: 8}, {Name: "a", Want: 8}}, map[string]int32{"a": 8, "b": 2},
		},
		"who has workers keeps them": {
			10,
			[]Claim{{Name: "low", Serving: 8, Want: 8}, {Name: "high", Priority: 1, Want: 8}},
			map[string]int32{"low": 8, "high": 2},
		},
		"unless a pool that preempts wants them, down to the minimum": {
			10,
			[]Claim{{Name: "low", Min: 1, Serving: 10, Want: 10}, {Name: "high", Priority: 1, Preempts: true, Want: 6}},
			map[string]int32{"low": 4, "high": 0},
		},
		"which gets them when they are drained": {
			10,
			[]Claim{{Name: "low", Min: 1, Serving: 4, Draining: 2, Want: 10}, {Name: "high", Priority: 1, Preempts: true, Serving: 4, Want: 6}},
			map[string]int32{"low": 4, "high": 4},
		},
		"and leaves the minimum": {
			10,
			[]Claim{{Name: "low", Min: 3, Serving: 10, Want: 10}, {Name: "high", Priority: 1, Preempts: true, Want: 20}},
			map[string]int32{"low": 3, "high": 0},
		},
		"the lowest is drained first": {
			10,
			[]Claim{
				{Name: "low", Serving: 5, Want: 5},
				{Name: "middle", Priority: 1, Serving: 5, Want: 5},
				{Name: "high", Priority: 2, Preempts: true, Want: 6},
			},
			map[string]int32{"low": 0, "middle": 4, "high": 0},
		},
		"an equal is not preempted": {
			10, []Claim{{Name: "a", Preempts: true, Want: 5}, {Name: "b", Serving: 10, Want: 10}}, map[string]int32{"a": 0, "b": 10},
		},
		"a budget that was lowered takes from the lowest, down to the minimum": {
			6,
			[]Claim{{Name: "low", Min: 2, Serving: 5, Want: 5}, {Name: "high", Priority: 1, Min: 1, Serving: 5, Want: 5}},
			map[string]int32{"low": 2, "high": 4},
		},
		"and if need be below it": {
			1,
			[]Claim{{Name: "low", Min: 2, Serving: 5, Want: 5}, {Name: "high", Priority: 1, Min: 1, Serving: 5, Want: 5}},
			map[string]int32{"low": 0, "high": 1},
		},
		"nobody has anything of nothing": {
			0, []Claim{{Name: "a", Serving: 1, Want: 3}}, map[string]int32{"a": 0},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Share(test.total, test.claims)); diff != "" {
				t.Errorf("the shares differ (-want, +got):\n%s", diff)
			}
		})
	}
}

// Whatever pools ask for, what is promised of their shares holds.
func TestPromisesOfShare(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 0))
		total := int32(r.IntN(40))
		claims := make([]Claim, r.IntN(6))
		for i := range claims {
			claims[i] = Claim{
				Name: fmt.Sprintf("pool-%d", i), Priority: int32(r.IntN(3)), Preempts: r.IntN(2) == 0,
				Min: int32(r.IntN(4)), Serving: int32(r.IntN(12)), Draining: int32(r.IntN(4)), Want: int32(r.IntN(20)),
			}
		}
		shares := Share(total, claims)
		var sum, serving, held, grown int32
		for _, c := range claims {
			share := shares[c.Name]
			sum += share
			serving += c.Serving
			held += c.Serving + c.Draining
			grown += max(share-c.Serving, 0)
			if share > max(c.Want, c.Serving) {
				t.Errorf("seed %d: %s gets %d, which it neither has nor wants", seed, c.Name, share)
			}
		}
		if sum > total {
			t.Errorf("seed %d: %d are shared, of %d", seed, sum, total)
		}
		if grown > max(total-held, 0) {
			t.Errorf("seed %d: there would be %d workers for a while, of %d", seed, held+grown, total)
		}
		for _, c := range claims {
			if serving <= total && shares[c.Name] < min(c.Serving, c.Min) {
				t.Errorf("seed %d: %s is left %d, less than its minimum", seed, c.Name, shares[c.Name])
			}
		}
		r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if diff := cmp.Diff(shares, Share(total, claims)); diff != "" {
			t.Errorf("seed %d: in another order others get it: %s", seed, diff)
		}
	}
}
