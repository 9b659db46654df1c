package workerpool

import (
	"testing"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAPoolWithASourceAssumesNoServiceTime(t *testing.T) {
	for title, test := range map[string]struct {
		change func(*testPool)
		want   int32
		source scaling.TargetSource
	}{
		"the default is the concurrency":              {func(*testPool) {}, 10, scaling.TargetDefault},
		"the default is at least 5":                   {func(s *testPool) { s.Pool.Spec.Concurrency = 1 }, 20, scaling.TargetDefault},
		"backlogPerReplica":                           {func(s *testPool) { s.Pool.Spec.Autoscaling.BacklogPerReplica = new(int32(50)) }, 2, scaling.TargetBacklogPerReplica},
		"the target of the source":                    {func(s *testPool) { s.Stats.BacklogPerReplica = 25 }, 4, scaling.TargetFromSource},
		"the service time that a worker reports":      {func(s *testPool) { s.Workers[0].Stats.Recent = &RecentAttempts{Count: 10, Seconds: 1} }, 1, scaling.TargetServiceTime},
		"a pool with Queues assumes a service time":   {func(s *testPool) { s.Pool.Spec.Source = nil }, 3, scaling.TargetAssumedServiceTime},
		"workers that do not answer change no target": {func(s *testPool) { s.Workers[0].Stats = nil }, 10, scaling.TargetDefault},
	} {
		t.Run(title, func(t *testing.T) {
			s := withSource(autoscaledPool(1))
			s.Pool.Spec.Autoscaling.MaxReplicas = 100
			s.Stats.InFlightKnown, s.Stats.Backlog = false, 100
			test.change(s)
			d := decideDemand(newFleet(s.Observation)).decision
			isRight := d.Recommended == test.want && d.Target.Source == test.source
			require.True(t, isRight, "%d recommended by %s: %s", d.Recommended, d.Target.Source, d.Formula)
		})
	}
}

func TestBudgetIsAllocatedByPriority(t *testing.T) {
	high := func(c budgetClaim) budgetClaim { c.Name, c.Priority, c.Preempts = "high", 10, true; return c }
	low := func(c budgetClaim) budgetClaim { c.Name = "low"; return c }
	for title, test := range map[string]struct {
		claims []budgetClaim
		total  int32
		want   map[string]int32
	}{
		"free workers go to the pool that needs them": {
			[]budgetClaim{low(budgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 10, map[string]int32{"low": 5},
		},
		"a pool gets at most the total": {[]budgetClaim{low(budgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 4, map[string]int32{"low": 4}},
		"the pool with the higher priority is first": {
			[]budgetClaim{low(budgetClaim{Recommended: 5}), high(budgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 5, "low": 1},
		},
		"preemption takes workers above the minimum of a lower priority": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6, MinReplicas: 2}), high(budgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 0, "low": 2},
		},
		"preemption takes only the missing workers": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), high(budgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"draining workers are not preempted again": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 4, Recommended: 6}), high(budgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"a pool without preemption waits": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "patient", Priority: 10, Recommended: 5}}, 6, map[string]int32{"patient": 0, "low": 6},
		},
		"equal priorities do not preempt each other": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "peer", Preempts: true, Recommended: 5}}, 6, map[string]int32{"peer": 0, "low": 6},
		},
		"a smaller total is taken from the lowest priority down to its minimum first": {
			[]budgetClaim{low(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 3}), high(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 1})},
			5,
			map[string]int32{"high": 2, "low": 3},
		},
		"a smaller total is taken below the minimum if necessary": {
			[]budgetClaim{low(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4}), high(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4})},
			5,
			map[string]int32{"high": 4, "low": 1},
		},
	} {
		t.Run(title, func(t *testing.T) {
			for name, want := range test.want {
				got := allocateBudget(test.claims, name, test.total)
				require.True(t, got == want, "%s gets %d, want %d", name, got, want)
			}
		})
	}
}
