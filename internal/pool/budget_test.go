package pool

import (
	"testing"
)

func TestBudget(t *testing.T) {
	high := func(c BudgetClaim) BudgetClaim { c.Name, c.Priority, c.Preempts = "high", 10, true; return c }
	low := func(c BudgetClaim) BudgetClaim { c.Name = "low"; return c }
	tests := map[string]struct {
		claims []BudgetClaim
		total  int32
		want   map[string]int32
	}{
		"what nobody has goes to who wants it": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 10, map[string]int32{"low": 5},
		},
		"and no more than that": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 4, map[string]int32{"low": 4},
		},
		"the higher priority has it first": {
			[]BudgetClaim{low(BudgetClaim{Recommended: 5}), high(BudgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 5, "low": 1},
		},
		"who preempts takes from the lower what is above its minimum, once it is drained": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6, MinReplicas: 2}), high(BudgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 0, "low": 2},
		},
		"no more than it is short of": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), high(BudgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"what drains already is not taken again": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 4, Recommended: 6}), high(BudgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"who does not preempt waits": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "calm", Priority: 10, Recommended: 5}}, 6, map[string]int32{"calm": 0, "low": 6},
		},
		"nobody takes from its own priority": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "peer", Preempts: true, Recommended: 5}}, 6, map[string]int32{"peer": 0, "low": 6},
		},
		"a total that has become smaller is paid by the lowest, down to its minimum first": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 3}), high(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 1})},
			5,
			map[string]int32{"high": 2, "low": 3},
		},
		"and below that, if need be": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4}), high(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4})},
			5,
			map[string]int32{"high": 4, "low": 1},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for name, want := range test.want {
				if got := AllocateBudget(test.claims, name, test.total); got != want {
					t.Errorf("%s may have %d, want %d", name, got, want)
				}
			}
		})
	}
}
