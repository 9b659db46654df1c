package pool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

// decideDesired decides the desired number of workers.
func (e *evaluation) decideDesired() {
	budget := replicaBudget(e.observation.Pool, e.observation.Policies, e.observation.NamespacePools)
	if e.observation.Pool.Spec.Autoscaling == nil {
		e.useSpecReplicas(budget)
		return
	}
	settings := scaling.NewSettings(e.observation.Pool.Spec.Autoscaling, workerConcurrency(e.observation.Pool))
	settings.MaxReplicas = min(settings.MaxReplicas, *e.effective.MaxReplicas)
	settings.Budget = budget
	settings.RatePerSecond, settings.MaxInFlight = e.observation.Limits.RatePerSecond, e.observation.Limits.MaxInFlight
	observation := scaling.Observation{
		Now: e.observation.Now, Settings: settings,
		Replicas: e.desired, Ready: e.availableWorkers(), PodStart: e.podStartTime(),
		Memory: e.observation.Memory,
	}
	if e.observation.Stats != nil {
		observation.Stats = &e.observation.Stats.BacklogStats
	}
	decision := scaling.Decide(observation)
	// A budget applies to busy workers too: they are drained like all others.
	if budget != nil && observation.Stats != nil && decision.Applied > *budget {
		decision.Applied, decision.Reason = max(*budget, 0), scaling.ReasonBudget
	}
	e.scalingDecision, e.desired, e.memory, e.replicaLimit = &decision, decision.Applied, decision.Memory, settings.MaxReplicas
	e.status.LastDecision = scaling.ExplainDecision(observation, decision)
	e.status.Scaling = scaling.StoreMemory(decision.Memory)
}

// useSpecReplicas sets the desired number of workers from spec.replicas, up to the limits that
// Policies set.
func (e *evaluation) useSpecReplicas(budget *int32) {
	e.status.LastDecision, e.status.Scaling, e.memory = nil, nil, scaling.Memory{}
	replicas := int32(0)
	if e.observation.Pool.Spec.Replicas != nil {
		replicas = *e.observation.Pool.Spec.Replicas
	}
	e.replicaLimit = *e.effective.MaxReplicas
	if budget != nil {
		e.replicaLimit = min(e.replicaLimit, max(*budget, 0))
	}
	e.desired = min(replicas, e.replicaLimit)
}

// podStartTime returns the median time from the creation of a worker until it is ready. If no
// worker is ready, it returns the time of the last decision.
func (e *evaluation) podStartTime() time.Duration {
	var times []time.Duration
	for _, r := range e.revisions {
		for _, w := range r.workers {
			if start := w.ReadySince.Sub(w.Created); w.IsReady() && start > 0 {
				times = append(times, start)
			}
		}
	}
	if len(times) > 0 {
		slices.Sort(times)
		return times[len(times)/2]
	}
	if e.status.LastDecision != nil && e.status.LastDecision.Inputs.PodStart != nil {
		return e.status.LastDecision.Inputs.PodStart.Duration
	}
	return 0
}
