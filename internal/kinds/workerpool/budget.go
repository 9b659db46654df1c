package workerpool

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// replicaBudget returns how many workers the pool may have of the budgets that it shares with
// others; nil if it shares none.
func replicaBudget(wp *v1alpha1.WorkerPool, limits []policy.TotalLimit, pools []v1alpha1.WorkerPool) *int32 {
	var budget *int32
	for _, limit := range limits {
		var claims []BudgetClaim
		for i := range pools {
			if limit.Selector.Matches(labels.Set(pools[i].Labels)) {
				claims = append(claims, claimOf(&pools[i], pools[i].UID == wp.UID))
			}
		}
		if share := AllocateBudget(claims, wp.Name, limit.MaxReplicas); budget == nil || share < *budget {
			budget = &share
		}
	}
	return budget
}

// BudgetClaim is what one pool has, and needs, of a budget that several pools share.
type BudgetClaim struct {
	// Name of the pool.
	Name string
	// Priority of the pool, and whether it preempts workers of pools with a lower one.
	Priority int32
	Preempts bool
	// Replicas is the number of workers that exist, including draining ones. Desired is the
	// number it decided on, Recommended the number it needs, and MinReplicas the number that
	// others do not preempt.
	Replicas, Desired, Recommended, MinReplicas int32
}

// claimOf returns the claim of a pool. The recommendation for the pool that is being decided is
// not known yet, so it claims its maximum.
func claimOf(wp *v1alpha1.WorkerPool, isDeciding bool) BudgetClaim {
	c := BudgetClaim{
		Name: wp.Name, Priority: wp.Spec.Priority, Preempts: wp.Spec.Preemption == v1alpha1.PreemptDrainLower,
		Replicas: wp.Status.Replicas, Desired: wp.Status.Desired,
	}
	maximum := int32(0)
	switch autoscaling := wp.Spec.Autoscaling; {
	case !wp.DeletionTimestamp.IsZero():
	case autoscaling != nil:
		c.MinReplicas, maximum = autoscaling.MinReplicas, autoscaling.MaxReplicas
		c.Recommended = c.Desired
		if wp.Status.LastDecision != nil {
			c.Recommended = min(maximum, max(c.Desired, wp.Status.LastDecision.Recommendation))
		}
	case wp.Spec.Replicas != nil:
		c.MinReplicas, maximum, c.Recommended = *wp.Spec.Replicas, *wp.Spec.Replicas, *wp.Spec.Replicas
	}
	if isDeciding {
		c.Recommended = maximum
	}
	return c
}

// AllocateBudget returns how many workers the named pool may have of a total. All pools compute
// the same allocation from the same claims. Free workers go to the pools with the highest
// priority. Pools that preempt take workers above their minimum from the pools with the lowest
// priority, and get them once they are drained.
func AllocateBudget(claims []BudgetClaim, name string, total int32) int32 {
	order := slices.Clone(claims)
	slices.SortStableFunc(order, func(a, b BudgetClaim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	free := total
	for _, c := range order {
		free -= max(c.Replicas, c.Desired)
	}
	// If the total has shrunk, the pools with the lowest priority give up the excess.
	excess := max(0, -free)
	free = max(0, free)
	allocated := make([]int32, len(order))
	for i, c := range order {
		more := min(max(0, c.Recommended-c.Desired), free)
		allocated[i] = c.Desired + more
		free -= more
	}
	excess = max(0, excess-drainingReplicas(order))
	excess = takeFromLowest(order, allocated, excess, func(c BudgetClaim) int32 { return c.MinReplicas })
	takeFromLowest(order, allocated, excess, func(BudgetClaim) int32 { return 0 })
	preemptLowerPools(order, allocated)
	if i := slices.IndexFunc(order, func(c BudgetClaim) bool { return c.Name == name }); i >= 0 {
		return allocated[i]
	}
	return 0
}

// drainingReplicas counts the workers that exist but are not desired: they will be free.
func drainingReplicas(claims []BudgetClaim) int32 {
	count := int32(0)
	for _, c := range claims {
		count += max(0, c.Replicas-c.Desired)
	}
	return count
}

// preemptLowerPools takes workers from pools with a lower priority for pools that preempt and
// have too few.
func preemptLowerPools(order []BudgetClaim, allocated []int32) {
	draining := drainingReplicas(order)
	for i, c := range order {
		if !c.Preempts {
			continue
		}
		missing := max(0, c.Recommended-allocated[i])
		freed := min(missing, draining)
		draining -= freed
		takeFromLowest(order, allocated, missing-freed, func(victim BudgetClaim) int32 {
			if victim.Priority >= c.Priority {
				return victim.Desired + victim.Recommended // above any allocation: take nothing
			}
			return victim.MinReplicas
		})
	}
}

// takeFromLowest lowers the allocations, starting with the lowest priority, each down to its
// floor. It returns the count that could not be taken.
func takeFromLowest(order []BudgetClaim, allocated []int32, count int32, floor func(BudgetClaim) int32) int32 {
	for i := len(order) - 1; i >= 0 && count > 0; i-- {
		taken := min(count, max(0, allocated[i]-floor(order[i])))
		allocated[i] -= taken
		count -= taken
	}
	return count
}
