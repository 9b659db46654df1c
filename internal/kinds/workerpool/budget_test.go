package workerpool

import (
	"testing"
)

func TestBudgetIsAllocatedByPriority(t *testing.T) {
	high := func(c BudgetClaim) BudgetClaim { c.Name, c.Priority, c.Preempts = "high", 10, true; return c }
	low := func(c BudgetClaim) BudgetClaim { c.Name = "low"; return c }
	tests := map[string]struct {
		claims []BudgetClaim
		total  int32
		want   map[string]int32
	}{
		"free workers go to the pool that needs them": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 10, map[string]int32{"low": 5},
		},
		"a pool gets at most the total": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 4, map[string]int32{"low": 4},
		},
		"the pool with the higher priority is first": {
			[]BudgetClaim{low(BudgetClaim{Recommended: 5}), high(BudgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 5, "low": 1},
		},
		"preemption takes workers above the minimum of a lower priority": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6, MinReplicas: 2}), high(BudgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 0, "low": 2},
		},
		"preemption takes only the missing workers": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), high(BudgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"draining workers are not preempted again": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 4, Recommended: 6}), high(BudgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"a pool without preemption waits": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "patient", Priority: 10, Recommended: 5}}, 6, map[string]int32{"patient": 0, "low": 6},
		},
		"equal priorities do not preempt each other": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "peer", Preempts: true, Recommended: 5}}, 6, map[string]int32{"peer": 0, "low": 6},
		},
		"a smaller total is taken from the lowest priority down to its minimum first": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 3}), high(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 1})},
			5,
			map[string]int32{"high": 2, "low": 3},
		},
		"a smaller total is taken below the minimum if necessary": {
			[]BudgetClaim{low(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4}), high(BudgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4})},
			5,
			map[string]int32{"high": 4, "low": 1},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for name, want := range test.want {
				if got := AllocateBudget(test.claims, name, test.total); got != want {
					t.Errorf("%s gets %d, want %d", name, got, want)
				}
			}
		})
	}
}
