package workerpool

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// minDefaultBacklogPerReplica is the lower bound of the default target of a source, which is otherwise the concurrency:
// fewer messages are mostly handled before another Pod has started. KEDA has the same default for a Redis list.
const minDefaultBacklogPerReplica = 5

// demand is how many workers a pool should have, and why.
type demand struct {
	desired int32
	// decision of package scaling; nil without autoscaling, and while a problem or a deletion prevents it.
	decision *scaling.Decision
	// explanation of the last decision; summary is its message without the formula.
	explanation *v1alpha1.ScaleDecision
	summary     string
	memory      scaling.Memory
	// limit of spec.replicas by Policies.
	limit int32
}

// decideDemand decides how many workers the pool should have. With a problem, the number does not change.
func decideDemand(f *fleet) demand {
	wp := f.Pool
	d := demand{desired: wp.Status.Desired, explanation: wp.Status.LastDecision, memory: f.Memory}
	if wp.Status.ObservedGeneration <= 0 { // no status was stored yet, or it was lost
		d.desired = sumOf(f.revisions, (*revisionState).servingWorkers)
	}
	switch {
	case f.isDeleting:
		return demand{explanation: d.explanation}
	case f.problem != nil:
		return d
	}
	budget := replicaBudget(wp, f.Policies.TotalLimits(), f.NamespacePools)
	autoscaling := wp.Spec.Autoscaling
	if autoscaling == nil {
		limit := *f.effective.MaxReplicas
		if budget != nil {
			limit = min(limit, max(*budget, 0))
		}
		return demand{desired: min(ptr.Deref(wp.Spec.Replicas, 0), limit), limit: limit}
	}
	settings := scaling.NewSettings(autoscaling, wp.Spec.Concurrency)
	settings.MaxReplicas = min(settings.MaxReplicas, *f.effective.MaxReplicas)
	settings.Budget = budget
	if wp.Spec.Source != nil {
		settings.DefaultBacklogPerReplica = max(settings.Concurrency, minDefaultBacklogPerReplica)
	}
	settings.RatePerSecond, settings.MaxInFlight = f.Limits.RatePerSecond, f.Limits.MaxInFlight
	observation := scaling.Observation{
		Now: f.Now, Settings: settings,
		Replicas: d.desired, Ready: sumOf(f.revisions, (*revisionState).availableWorkers), PodStart: podStartTime(f),
		Memory: f.Memory,
	}
	if f.Stats != nil {
		observation.Stats = &f.Stats.BacklogStats
	}
	made := scaling.Decide(observation)
	// A budget applies to busy workers too, which are drained.
	if budget != nil && observation.Stats != nil && made.Applied > *budget {
		made.Applied, made.Reason = max(*budget, 0), scaling.ReasonBudget
	}
	return demand{
		desired: made.Applied, decision: &made, memory: made.Memory,
		explanation: scaling.ExplainDecision(observation, made), summary: scaling.Summarize(observation, made),
	}
}

// podStartTime returns the median time from the creation of a worker until it is ready; 0 if it is unknown. A worker that became ready
// later than a rollout waits for progress has probably been ready before.
func podStartTime(f *fleet) time.Duration {
	longest := decision.DurationOr(f.rolloutSpec.ProgressDeadline, defaultProgressDeadline)
	var times []time.Duration
	for _, r := range f.revisions {
		for _, w := range r.workers {
			if start := w.ReadySince.Sub(w.Created); w.IsReady() && start > 0 && start <= longest {
				times = append(times, start)
			}
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// replicaBudget returns how many workers the pool may have of the budgets that it shares; nil if it shares none.
func replicaBudget(wp *v1alpha1.WorkerPool, limits []policy.TotalLimit, pools []v1alpha1.WorkerPool) *int32 {
	var budget *int32
	for _, limit := range limits {
		var claims []budgetClaim
		for i := range pools {
			if limit.Selector.Matches(labels.Set(pools[i].Labels)) {
				claims = append(claims, claimOf(&pools[i], pools[i].UID == wp.UID))
			}
		}
		if share := allocateBudget(claims, wp.Name, limit.MaxReplicas); budget == nil || share < *budget {
			budget = &share
		}
	}
	return budget
}

// budgetClaim is the share of a pool in a budget that several pools share.
type budgetClaim struct {
	// Name of the pool.
	Name string
	// Priority of the pool, and whether it preempts workers of pools with lower priority.
	Priority int32
	Preempts bool
	// Replicas is the number of existing workers, including draining workers; Desired the number after limits,
	// Recommended the number that the pool needs, and MinReplicas the number that other pools do not preempt.
	Replicas, Desired, Recommended, MinReplicas int32
}

// claimOf returns the claim of a pool. The pool that is being decided has no recommendation yet, so it claims its
// maximum.
func claimOf(wp *v1alpha1.WorkerPool, isDeciding bool) budgetClaim {
	c := budgetClaim{
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

// allocateBudget returns how many workers the named pool may have of a total. All pools compute the same allocation
// from the same claims. Free workers go to the pools with the highest priority. Pools that preempt take workers above
// the minimum of the pools with the lowest priority, and get them once they are drained.
func allocateBudget(claims []budgetClaim, name string, total int32) int32 {
	order := slices.Clone(claims)
	slices.SortStableFunc(order, func(a, b budgetClaim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	free, draining := total, int32(0) // draining workers will be free: they exist but are not desired
	for _, c := range order {
		free -= max(c.Replicas, c.Desired)
		draining += max(0, c.Replicas-c.Desired)
	}
	// If the total has decreased, the pools with the lowest priority give up the excess.
	excess := max(0, -free)
	free = max(0, free)
	allocated := make([]int32, len(order))
	for i, c := range order {
		more := min(max(0, c.Recommended-c.Desired), free)
		allocated[i] = c.Desired + more
		free -= more
	}
	// takeFromLowest lowers allocations, each down to its floor, starting with the lowest priority. It returns the count that
	// could not be taken.
	takeFromLowest := func(count int32, floor func(budgetClaim) int32) int32 {
		for i := len(order) - 1; i >= 0 && count > 0; i-- {
			taken := min(count, max(0, allocated[i]-floor(order[i])))
			allocated[i] -= taken
			count -= taken
		}
		return count
	}
	excess = takeFromLowest(max(0, excess-draining), func(c budgetClaim) int32 { return c.MinReplicas })
	takeFromLowest(excess, func(budgetClaim) int32 { return 0 })
	for i, c := range order {
		if !c.Preempts {
			continue
		}
		missing := max(0, c.Recommended-allocated[i])
		freed := min(missing, draining)
		draining -= freed
		takeFromLowest(missing-freed, func(victim budgetClaim) int32 {
			if victim.Priority >= c.Priority {
				return victim.Desired + victim.Recommended // above any allocation, so nothing is taken
			}
			return victim.MinReplicas
		})
	}
	if i := slices.IndexFunc(order, func(c budgetClaim) bool { return c.Name == name }); i >= 0 {
		return allocated[i]
	}
	return 0
}
