package pool

import (
	"cmp"
	"slices"
)

// BudgetClaim is what one pool has, and wants, of the workers that several share.
type BudgetClaim struct {
	// Name of the pool.
	Name string
	// Priority of it, and whether it takes from those with less.
	Priority int32
	Preempts bool
	// Replicas workers there are, those that drain too; Desired it shall have, Want it would
	// have, and Min it keeps.
	Replicas, Desired, Recommended, MinReplicas int32
}

// AllocateBudget is how many workers the pool of that name may have of a total. All pools come to
// the same answer from the same claims: what nobody holds goes to those with the highest
// priority, and those who preempt take from the lowest what is above their minimum. They
// get it when it is drained.
func AllocateBudget(claims []BudgetClaim, name string, total int32) int32 {
	order := slices.Clone(claims)
	slices.SortStableFunc(order, func(a, b BudgetClaim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	free := total
	for _, c := range order {
		free -= max(c.Replicas, c.Desired)
	}
	// A total that has become smaller is paid by the lowest.
	owed := max(0, -free)
	free = max(0, free)
	may := make([]int32, len(order))
	for i, c := range order {
		may[i] = c.Desired
		more := min(max(0, c.Recommended-c.Desired), free)
		may[i] += more
		free -= more
	}
	owed = max(0, owed-drainingReplicas(order))
	owed = takeFromLowest(order, may, owed, func(c, _ BudgetClaim) int32 { return c.MinReplicas }, BudgetClaim{})
	takeFromLowest(order, may, owed, func(BudgetClaim, BudgetClaim) int32 { return 0 }, BudgetClaim{})
	preemptLowerPools(order, may)
	for i, c := range order {
		if c.Name == name {
			return may[i]
		}
	}
	return 0
}

// drainingReplicas workers are held and no more desired: they will be free.
func drainingReplicas(claims []BudgetClaim) int32 {
	number := int32(0)
	for _, c := range claims {
		number += max(0, c.Replicas-c.Desired)
	}
	return number
}

// preemptLowerPools takes from lower pools what higher ones want and do not get.
func preemptLowerPools(order []BudgetClaim, may []int32) {
	coming := drainingReplicas(order)
	for i, c := range order {
		if !c.Preempts {
			continue
		}
		short := max(0, c.Recommended-may[i])
		soon := min(short, coming)
		coming -= soon
		takeFromLowest(order, may, short-soon, func(victim, taker BudgetClaim) int32 {
			if victim.Priority >= taker.Priority {
				return victim.Desired + victim.Recommended // nothing is above that
			}
			return victim.MinReplicas
		}, c)
	}
}

// takeFromLowest lowers what the pools may have, the lowest first, each down to its floor. It
// returns what could not be taken.
func takeFromLowest(order []BudgetClaim, may []int32, number int32, floor func(victim, taker BudgetClaim) int32, taker BudgetClaim) int32 {
	for i := len(order) - 1; i >= 0 && number > 0; i-- {
		taken := min(number, max(0, may[i]-floor(order[i], taker)))
		may[i] -= taken
		number -= taken
	}
	return number
}
