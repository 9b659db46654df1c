package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

// scale decides how many workers there shall be.
func (d *decision) scale() {
	spec := &d.in.Pool.Spec
	if spec.Autoscaling == nil {
		d.scaleByHand()
		return
	}
	policy := scaling.NewPolicy(spec.Autoscaling, concurrency(d.in.Pool))
	if d.in.Effective != nil && d.in.Effective.MaxReplicas != nil {
		policy.Max = min(policy.Max, *d.in.Effective.MaxReplicas)
	}
	policy.Budget = d.in.Budget
	policy.RatePerSecond, policy.MaxInFlight = d.in.Limits.RatePerSecond, d.in.Limits.MaxInFlight
	in := scaling.Input{
		Now: d.in.Now, Policy: policy,
		Replicas: d.desired, Ready: d.available(), PodStart: d.podStart(),
		Memory: d.in.Memory,
	}
	if d.in.Figures != nil {
		in.Figures = &d.in.Figures.Figures
	}
	decided := scaling.Decide(in)
	// Of a budget no worker is kept because it is busy: it is drained, as any other.
	if budget := d.in.Budget; budget != nil && in.Figures != nil && decided.Applied > *budget {
		decided.Applied, decided.Reason = max(*budget, 0), scaling.ReasonBudget
	}
	d.decided, d.desired, d.memory, d.limit = &decided, decided.Applied, decided.Memory, policy.Max
	d.status.LastDecision = scaling.Explain(in, decided)
	d.status.Scaling = scaling.Store(decided.Memory)
}

// scaleByHand takes over the number that was asked for, within what the Policies allow.
func (d *decision) scaleByHand() {
	d.status.LastDecision, d.status.Scaling, d.memory = nil, nil, scaling.Memory{}
	wanted := int32(0)
	if d.in.Pool.Spec.Replicas != nil {
		wanted = *d.in.Pool.Spec.Replicas
	}
	d.desired, d.limit = wanted, wanted
	if d.in.Effective != nil && d.in.Effective.MaxReplicas != nil {
		d.limit = *d.in.Effective.MaxReplicas
	}
	if d.in.Budget != nil {
		d.limit = min(d.limit, max(*d.in.Budget, 0))
	}
	d.desired = min(d.desired, d.limit)
}

// podStart is how long a Pod of this pool takes until it takes messages: what half of
// them took at most.
func (d *decision) podStart() time.Duration {
	var took []time.Duration
	for _, r := range d.revisions {
		for _, w := range r.workers {
			if start := w.ReadySince.Sub(w.Created); w.Ready() && start > 0 {
				took = append(took, start)
			}
		}
	}
	if len(took) == 0 {
		if d.status.LastDecision != nil && d.status.LastDecision.Inputs.PodStart != nil {
			return d.status.LastDecision.Inputs.PodStart.Duration
		}
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}
