package pool

import (
	"testing"
)

func TestBudget(t *testing.T) {
	high := func(c Claim) Claim { c.Name, c.Priority, c.Preempts = "high", 10, true; return c }
	low := func(c Claim) Claim { c.Name = "low"; return c }
	tests := map[string]struct {
		claims []Claim
		total  int32
		want   map[string]int32
	}{
		"what nobody has goes to who wants it": {
			[]Claim{low(Claim{Held: 2, Desired: 2, Want: 5})}, 10, map[string]int32{"low": 5},
		},
		"and no more than that": {
			[]Claim{low(Claim{Held: 2, Desired: 2, Want: 5})}, 4, map[string]int32{"low": 4},
		},
		"the higher priority has it first": {
			[]Claim{low(Claim{Want: 5}), high(Claim{Want: 5})}, 6, map[string]int32{"high": 5, "low": 1},
		},
		"who preempts takes from the lower what is above its minimum, once it is drained": {
			[]Claim{low(Claim{Held: 6, Desired: 6, Want: 6, Min: 2}), high(Claim{Want: 5})}, 6, map[string]int32{"high": 0, "low": 2},
		},
		"no more than it is short of": {
			[]Claim{low(Claim{Held: 6, Desired: 6, Want: 6}), high(Claim{Want: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"what drains already is not taken again": {
			[]Claim{low(Claim{Held: 6, Desired: 4, Want: 6}), high(Claim{Want: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"who does not preempt waits": {
			[]Claim{low(Claim{Held: 6, Desired: 6, Want: 6}), {Name: "calm", Priority: 10, Want: 5}}, 6, map[string]int32{"calm": 0, "low": 6},
		},
		"nobody takes from its own priority": {
			[]Claim{low(Claim{Held: 6, Desired: 6, Want: 6}), {Name: "peer", Preempts: true, Want: 5}}, 6, map[string]int32{"peer": 0, "low": 6},
		},
		"a total that has become smaller is paid by the lowest, down to its minimum first": {
			[]Claim{low(Claim{Held: 4, Desired: 4, Want: 4, Min: 3}), high(Claim{Held: 4, Desired: 4, Want: 4, Min: 1})},
			5,
			map[string]int32{"high": 2, "low": 3},
		},
		"and below that, if need be": {
			[]Claim{low(Claim{Held: 4, Desired: 4, Want: 4, Min: 4}), high(Claim{Held: 4, Desired: 4, Want: 4, Min: 4})},
			5,
			map[string]int32{"high": 4, "low": 1},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for name, want := range test.want {
				if got := Budget(test.claims, name, test.total); got != want {
					t.Errorf("%s may have %d, want %d", name, got, want)
				}
			}
		})
	}
}
