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

// demand is how many workers a pool should have, and why.
type demand struct {
	desired int32
	// decision of package scaling; nil without autoscaling, and while a problem or a deletion prevents it.
	decision *scaling.Decision
	// explanation of the last decision, and its memory in the form that the status stores.
	explanation *v1alpha1.ScaleDecision
	stored      *v1alpha1.ScaleMemory
	memory      scaling.Memory
	// limit of spec.replicas that Policies set.
	limit int32
}

// decideDemand decides how many workers the pool should have. A pool with a problem keeps what it has.
func decideDemand(f *fleet) demand {
	wp := f.Pool
	d := demand{desired: wp.Status.Desired, explanation: wp.Status.LastDecision, stored: wp.Status.Scaling, memory: f.Memory}
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
	settings := scaling.NewSettings(autoscaling, workerConcurrency(wp))
	settings.MaxReplicas = min(settings.MaxReplicas, *f.effective.MaxReplicas)
	settings.Budget = budget
	if wp.Spec.Source != nil {
		settings.DefaultBacklogPerReplica = max(settings.Concurrency, minDefaultBacklogPerReplica)
	}
	settings.RatePerSecond, settings.MaxInFlight = f.Limits.RatePerSecond, f.Limits.MaxInFlight
	observation := scaling.Observation{
		Now: f.Now, Settings: settings,
		Replicas: d.desired, Ready: sumOf(f.revisions, (*revisionState).availableWorkers), PodStart: podStartTime(f.revisions, d.explanation),
		Memory: f.Memory,
	}
	if f.Stats != nil {
		observation.Stats = &f.Stats.BacklogStats
	}
	decision := scaling.Decide(observation)
	// A budget applies to busy workers too: they are drained like all others.
	if budget != nil && observation.Stats != nil && decision.Applied > *budget {
		decision.Applied, decision.Reason = max(*budget, 0), scaling.ReasonBudget
	}
	return demand{
		desired: decision.Applied, decision: &decision, memory: decision.Memory,
		explanation: scaling.ExplainDecision(observation, decision), stored: scaling.StoreMemory(decision.Memory),
	}
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
