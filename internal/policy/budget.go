package policy

import (
	"cmp"
	"slices"
)

// Claim is what a pool asks of a replica budget that it shares with others.
type Claim struct {
	Name string
	// Priority among the pools: the greater first, then the first by name.
	Priority int32
	// Preempts says that it may have workers drained of pools with a lower priority.
	Preempts bool
	// Min is what another's claim leaves it.
	Min int32
	// Serving workers it has, and Draining ones, which count as long as they are there.
	Serving, Draining int32
	// Want is how many it would have without the budget.
	Want int32
}

// Share says how many workers each pool may have, by its name, of so many together.
//
// Who has workers keeps them, unless a pool that preempts wants them; what is free goes by
// priority. What is taken from a pool is free only when it is drained, so there are never
// more workers than the budget, and none is stopped at work to make room. Only a budget
// that was lowered may leave a pool less than its minimum.
func Share(total int32, claims []Claim) map[string]int32 {
	b := newBudget(total, claims)
	b.lower()
	b.grant()
	shares := make(map[string]int32, len(b.claims))
	for i, c := range b.claims {
		shares[c.Name] = b.shares[i]
	}
	return shares
}

// budget is being shared. The claims are in the order in which they are served.
type budget struct {
	total  int32
	claims []Claim
	shares []int32
}

func newBudget(total int32, claims []Claim) *budget {
	b := &budget{total: max(total, 0), claims: slices.Clone(claims)}
	slices.SortFunc(b.claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range b.claims {
		b.shares = append(b.shares, c.Serving)
	}
	return b
}

// shared is how much of the budget is.
func (b *budget) shared() int32 {
	sum := int32(0)
	for _, share := range b.shares {
		sum += share
	}
	return sum
}

// lower takes what is too much from the last first: down to their minimum, and only if
// that is not enough, all.
func (b *budget) lower() {
	for _, leave := range []func(c Claim) int32{func(c Claim) int32 { return c.Min }, func(Claim) int32 { return 0 }} {
		for i, c := range slices.Backward(b.claims) {
			b.take(i, b.shared()-b.total, leave(c))
		}
	}
}

// take makes a share smaller by so much, as far as what is left to it allows. It returns
// by how much.
func (b *budget) take(i int, much, leave int32) int32 {
	taken := min(max(much, 0), max(b.shares[i]-leave, 0))
	b.shares[i] -= taken
	return taken
}

// grant gives what is free to those that want it, in their order. What is still being
// drained is theirs too, in the same order, but not yet: only what then is still missing
// is taken from others.
func (b *budget) grant() {
	free := b.total
	for _, c := range b.claims {
		free -= c.Serving + c.Draining
	}
	free = max(free, 0)
	coming := max(b.total-b.shared()-free, 0)
	for i, c := range b.claims {
		granted := min(free, max(c.Want-b.shares[i], 0))
		b.shares[i] += granted
		free -= granted
		missing := max(c.Want-b.shares[i], 0)
		awaited := min(coming, missing)
		coming -= awaited
		if c.Preempts {
			b.preempt(i, missing-awaited)
		}
	}
}

// preempt takes so much from pools with a lower priority, from the last first.
func (b *budget) preempt(by int, much int32) {
	for i := len(b.claims) - 1; i > by && much > 0; i-- {
		if b.claims[i].Priority < b.claims[by].Priority {
			much -= b.take(i, much, b.claims[i].Min)
		}
	}
}
