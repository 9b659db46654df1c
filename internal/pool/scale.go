package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

// scaleAutomatically decides how many workers there shall be.
func (d *evaluation) scaleAutomatically() {
	spec := &d.observation.Pool.Spec
	if spec.Autoscaling == nil {
		d.scaleToSpec()
		return
	}
	policy := scaling.NewSettings(spec.Autoscaling, workerConcurrency(d.observation.Pool))
	if d.observation.Effective != nil && d.observation.Effective.MaxReplicas != nil {
		policy.MaxReplicas = min(policy.MaxReplicas, *d.observation.Effective.MaxReplicas)
	}
	policy.Budget = d.observation.Budget
	policy.RatePerSecond, policy.MaxInFlight = d.observation.Limits.RatePerSecond, d.observation.Limits.MaxInFlight
	in := scaling.Observation{
		Now: d.observation.Now, Settings: policy,
		Replicas: d.desired, Ready: d.availableWorkers(), PodStart: d.medianPodStart(),
		Memory: d.observation.Memory,
	}
	if d.observation.Stats != nil {
		in.Stats = &d.observation.Stats.BacklogStats
	}
	decided := scaling.Decide(in)
	// Of a budget no worker is kept because it is busy: it is drained, as any other.
	if budget := d.observation.Budget; budget != nil && in.Stats != nil && decided.Applied > *budget {
		decided.Applied, decided.Reason = max(*budget, 0), scaling.ReasonBudget
	}
	d.scalingDecision, d.desired, d.memory, d.replicaLimit = &decided, decided.Applied, decided.Memory, policy.MaxReplicas
	d.status.LastDecision = scaling.ExplainDecision(in, decided)
	d.status.Scaling = scaling.StoreMemory(decided.Memory)
}

// scaleToSpec takes over the number that was asked for, within what the Policies allow.
func (d *evaluation) scaleToSpec() {
	d.status.LastDecision, d.status.Scaling, d.memory = nil, nil, scaling.Memory{}
	wanted := int32(0)
	if d.observation.Pool.Spec.Replicas != nil {
		wanted = *d.observation.Pool.Spec.Replicas
	}
	d.desired, d.replicaLimit = wanted, wanted
	if d.observation.Effective != nil && d.observation.Effective.MaxReplicas != nil {
		d.replicaLimit = *d.observation.Effective.MaxReplicas
	}
	if d.observation.Budget != nil {
		d.replicaLimit = min(d.replicaLimit, max(*d.observation.Budget, 0))
	}
	d.desired = min(d.desired, d.replicaLimit)
}

// medianPodStart is how long a Pod of this pool takes until it takes messages: what half of
// them took at most.
func (d *evaluation) medianPodStart() time.Duration {
	var took []time.Duration
	for _, r := range d.revisions {
		for _, w := range r.workers {
			if start := w.ReadySince.Sub(w.Created); w.IsReady() && start > 0 {
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
