package workerpool

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// minDefaultBacklogPerReplica is the lower bound of the default target of a source, which is otherwise the
// concurrency: one worker for fewer messages would mostly wait for Pods to start. KEDA has the same default
// for a Redis list.
const minDefaultBacklogPerReplica = 5

// decideDesired decides the desired number of workers.
func (e *evaluation) decideDesired() {
	autoscaling := e.observation.Pool.Spec.Autoscaling
	budget := replicaBudget(e.observation.Pool, e.observation.Policies.TotalLimits(), e.observation.NamespacePools)
	if autoscaling == nil {
		e.useSpecReplicas(budget)
		return
	}
	settings := scaling.NewSettings(autoscaling, workerConcurrency(e.observation.Pool))
	settings.MaxReplicas = min(settings.MaxReplicas, *e.effective.MaxReplicas)
	settings.Budget = budget
	if e.observation.Pool.Spec.Source != nil {
		settings.DefaultBacklogPerReplica = max(settings.Concurrency, minDefaultBacklogPerReplica)
	}
	settings.RatePerSecond, settings.MaxInFlight = e.observation.Limits.RatePerSecond, e.observation.Limits.MaxInFlight
	observation := scaling.Observation{
		Now: e.observation.Now, Settings: settings,
		Replicas: e.desired, Ready: sumOf(e.revisions, (*revisionState).availableWorkers), PodStart: podStartTime(e.revisions, e.status.LastDecision),
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
	e.scalingDecision, e.desired, e.decision.Memory = &decision, decision.Applied, decision.Memory
	e.status.LastDecision = scaling.ExplainDecision(observation, decision)
	e.status.Scaling = scaling.StoreMemory(decision.Memory)
}

// useSpecReplicas sets the desired number of workers from spec.replicas, up to the limits that
// Policies set.
func (e *evaluation) useSpecReplicas(budget *int32) {
	e.status.LastDecision, e.status.Scaling, e.decision.Memory = nil, nil, scaling.Memory{}
	e.replicaLimit = *e.effective.MaxReplicas
	if budget != nil {
		e.replicaLimit = min(e.replicaLimit, max(*budget, 0))
	}
	e.desired = min(ptr.Deref(e.observation.Pool.Spec.Replicas, 0), e.replicaLimit)
}

// podStartTime returns the median time from the creation of a worker until it is ready. If no
// worker is ready, it returns the time of the last decision; 0 if it is unknown too.
func podStartTime(revisions []*revisionState, last *v1alpha1.ScaleDecision) time.Duration {
	var times []time.Duration
	for _, r := range revisions {
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
	if last == nil {
		return 0
	}
	return ptr.Deref(last.Inputs.PodStart, metav1.Duration{}).Duration
}
