package workerpool

import (
	"context"
	"fmt"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/policy"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// policies of a pool's namespace, and those that select the pool.
type policies struct {
	all      []v1alpha1.Policy
	selected policy.Selection
}

// observePolicies finds out what holds for the pool.
func (r *Reconciler) observePolicies(ctx context.Context, seen *sight) error {
	wp := seen.in.Pool
	var list v1alpha1.PolicyList
	if err := r.client.List(ctx, &list, client.InNamespace(wp.Namespace)); err != nil {
		return fmt.Errorf("listing Policies: %w", err)
	}
	selected, err := policy.SelectPolicies(list.Items, wp.Labels)
	if err != nil {
		// The webhook refuses such a Policy. The others hold nevertheless.
		ctrl.LoggerFrom(ctx).Error(err, "Leaving out Policies that cannot be read")
	}
	seen.policies = policies{list.Items, selected}
	seen.in.Effective = policy.EffectiveWorkerPool(wp, selected)
	if err := policy.CheckImages(wp, selected); err != nil {
		seen.in.Problem = &pool.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	return nil
}

// shares tells whether the pool has a budget with others.
func (s *sight) shares() bool {
	for _, p := range s.policies.selected {
		if p.Spec.Limits != nil && p.Spec.Limits.MaxReplicasTotal != nil {
			return true
		}
	}
	return false
}

// claim finds out how many workers the pool may have of each budget.
func (r *Reconciler) claim(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight) error {
	var pools v1alpha1.WorkerPoolList
	if err := r.client.List(ctx, &pools, client.InNamespace(wp.Namespace)); err != nil {
		return fmt.Errorf("listing WorkerPools: %w", err)
	}
	for _, p := range seen.policies.selected {
		if p.Spec.Limits == nil || p.Spec.Limits.MaxReplicasTotal == nil {
			continue
		}
		var claims []pool.BudgetClaim
		for i := range pools.Items {
			other := r.writeCache.Newest(&pools.Items[i])
			if matches, err := policy.SelectsLabels(p, other.Labels); err != nil || !matches {
				continue // one that cannot be read selects nobody, this pool neither
			}
			claims = append(claims, claimOf(other, other.UID == wp.UID))
		}
		budget := pool.AllocateBudget(claims, wp.Name, *p.Spec.Limits.MaxReplicasTotal)
		if seen.in.Budget == nil || budget < *seen.in.Budget {
			seen.in.Budget = &budget
		}
	}
	return nil
}

// claimOf is what a pool has and wants. What one's own will want is not decided yet: it
// is as much as can be.
func claimOf(wp *v1alpha1.WorkerPool, own bool) pool.BudgetClaim {
	c := pool.BudgetClaim{
		Name: wp.Name, Priority: wp.Spec.Priority, Preempts: wp.Spec.Preemption == v1alpha1.PreemptDrainLower,
		Replicas: wp.Status.Replicas, Desired: wp.Status.Desired,
	}
	most := int32(0)
	switch a := wp.Spec.Autoscaling; {
	case !wp.DeletionTimestamp.IsZero():
	case a != nil:
		c.MinReplicas, most = a.MinReplicas, a.MaxReplicas
		c.Recommended = c.Desired
		if wp.Status.LastDecision != nil {
			c.Recommended = min(most, max(c.Desired, wp.Status.LastDecision.Want))
		}
	case wp.Spec.Replicas != nil:
		c.MinReplicas, most, c.Recommended = *wp.Spec.Replicas, *wp.Spec.Replicas, *wp.Spec.Replicas
	}
	if own {
		c.Recommended = most
	}
	return c
}

// budgets has pools of one namespace decide one after another.
type budgets struct {
	mu         sync.Mutex
	namespaces map[string]*sync.Mutex
}

func newBudgets() *budgets { return &budgets{namespaces: map[string]*sync.Mutex{}} }

// lock returns the function that unlocks.
func (b *budgets) lock(namespace string) (unlock func()) {
	b.mu.Lock()
	one := b.namespaces[namespace]
	if one == nil {
		one = &sync.Mutex{}
		b.namespaces[namespace] = one
	}
	b.mu.Unlock()
	one.Lock()
	return one.Unlock
}
