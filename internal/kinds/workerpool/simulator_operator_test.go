package workerpool

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// reconcileOnce simulates one reconciliation: observe, decide, record, act, with a random crash between any two requests.
func (w *simulator) reconcileOnce() Decision {
	in := w.observeCluster()
	plan := Decide(in)
	w.checkDecision(&in, &plan)
	if !w.executeDecision(&in, &plan) {
		return Decision{}
	}
	return plan
}

func (w *simulator) observeCluster() Observation {
	in := Observation{Pool: w.pool.DeepCopy(), Now: w.now, Memory: w.scalingMemory, Rollout: w.rolloutMemory, Config: WorkerConfig{File: "x"}}
	in.Revisions, in.Workers = slices.Clone(w.cachedRevisions), slices.Clone(w.cachedWorkers)
	for i := range in.Workers {
		in.Workers[i].Stats = w.workerStats(in.Workers[i].Name)
	}
	if w.brokerDown {
		in.StatsError = "the broker is down"
		return in
	}
	in.Stats = &QueueStats{InFlightKnown: true, RetriesInFlight: w.retriesInFlight, Lease: simulatedLease}
	in.Stats.Backlog = w.backlog
	in.Stats.InFlight = int64(len(w.lostLeaseEnds)) + w.retrying
	for _, p := range w.pods {
		in.Stats.InFlight += int64(len(p.messageEnds))
	}
	return in
}

// workerStats returns the stats that a worker reports, or nil if it does not respond.
func (w *simulator) workerStats(name string) *WorkerStats {
	p := w.findPod(name)
	if p == nil || p.unreachable || !p.Running {
		return nil
	}
	s := &WorkerStats{Draining: p.isDraining, InFlight: int64(len(p.messageEnds)), Succeeded: new(p.succeeded), Failed: new(p.failed)}
	if p.reportsNoMessages {
		s.InFlight = 0
	}
	s.Drained = p.isDraining && s.InFlight == 0
	return s
}

func (w *simulator) findPod(name string) *simulatedPod {
	if i := slices.IndexFunc(w.pods, func(p *simulatedPod) bool { return p.Name == name }); i >= 0 {
		return w.pods[i]
	}
	return nil
}

func (w *simulator) checkDecision(in *Observation, plan *Decision) {
	before := w.pool.Status
	if in.Stats == nil && w.pool.Spec.Autoscaling != nil && plan.Status.Desired < min(before.Desired, w.pool.Spec.Autoscaling.MaxReplicas) {
		w.violationf("scaled down to %d without stats", plan.Status.Desired)
	}
	if a := w.pool.Spec.Autoscaling; a != nil && (plan.Status.Desired > a.MaxReplicas || in.Stats != nil && plan.Status.Desired < 0) {
		w.violationf("%d workers are out of bounds", plan.Status.Desired)
	}
	total, was := int32(0), int32(0)
	for _, r := range in.Revisions {
		size, live := r.Replicas, int32(0)
		for _, worker := range in.Workers {
			if worker.Revision == r.Hash && !worker.Terminating {
				live++
			}
		}
		was += max(size, live)
		for _, s := range plan.Resizes {
			if s.Name == r.Name {
				size = s.Replicas
			}
		}
		total += max(size, live)
	}
	for _, s := range plan.Resizes {
		if s.NewWorkload != nil {
			total += s.Replicas
		}
	}
	// A removable worker may already be replaced before it is removed.
	surge := countOrPercent(w.pool.Spec.Rollout.MaxSurge, defaultMaxSurge, plan.Status.Desired, true)
	for i := range in.Workers {
		if !in.Workers[i].RemovableSince.IsZero() {
			surge++
		}
	}
	if total > max(was, plan.Status.Desired+surge) {
		w.violationf("%d workers, %d desired with a surge of %d", total, plan.Status.Desired, surge)
	}
}

// maybeCrash randomly ends the process between two requests.
func (w *simulator) maybeCrash() bool {
	if w.noDisturbances || !w.randomChance(3) {
		return false
	}
	w.logf("operator crashes")
	w.crashes++
	w.scalingMemory, w.rolloutMemory = scaling.RestoreMemory(&w.pool.Status), RolloutMemory{}
	return true
}

// executeDecision reports whether nothing interrupted it: a crash, or a conflict.
func (w *simulator) executeDecision(in *Observation, plan *Decision) bool {
	if w.maybeCrash() {
		return false
	}
	w.pool = w.pool.DeepCopy()
	w.pool.Status, w.scalingMemory, w.rolloutMemory = plan.Status, plan.Memory, plan.Rollout
	for _, m := range plan.DrainStates {
		if w.maybeCrash() || !w.writeDrainState(in, m) {
			return false
		}
	}
	for _, request := range plan.DrainRequests {
		if w.maybeCrash() {
			return false
		}
		if p := w.findPod(request.Worker); p != nil && !p.unreachable && !p.Terminating {
			w.logf("request to %s: drain %t", p.Name, request.Drain)
			p.isDraining = request.Drain
		}
	}
	for _, size := range plan.Resizes {
		if w.maybeCrash() || !w.resizeRevision(size) {
			return false
		}
	}
	for _, name := range plan.DeleteRevisions {
		if d := w.deployments[name]; d.Replicas > 0 || len(w.livePods(d.Hash)) > 0 {
			w.violationf("%s is removed with its workers", name)
		}
		delete(w.deployments, name)
	}
	return true
}

// writeDrainState writes the drain state of a Pod under the optimistic lock.
func (w *simulator) writeDrainState(in *Observation, m DrainState) bool {
	p := w.findPod(m.Worker)
	i := slices.IndexFunc(in.Workers, func(worker Worker) bool { return worker.Name == m.Worker })
	seen := in.Workers[i]
	seen.Stats = nil
	if p == nil || p.Worker != seen {
		w.logf("conflict: %s", m.Worker)
		return false
	}
	w.logf("mark %+v", m)
	p.DrainingSince, p.IdleSince, p.RemovableSince = m.DrainingSince, m.IdleSince, m.RemovableSince
	p.version++
	return true
}

// resizeRevision changes the replicas of a revision. It reads its workers live before it reduces them.
func (w *simulator) resizeRevision(s RevisionSize) bool {
	d := w.deployments[s.Name]
	if d == nil {
		if s.NewWorkload == nil {
			return false // another client deleted it
		}
		_, isOrdered := s.NewWorkload.(*appsv1.StatefulSet)
		d = &simulatedWorkload{Revision{Name: s.Name, Hash: s.NewWorkload.GetLabels()[LabelRevision], Created: w.now.Truncate(time.Second), Ordered: isOrdered}}
		w.deployments[s.Name] = d
	}
	live, fewer := w.livePods(d.Hash), s.Replicas < d.Replicas
	if fewer {
		var workers []Worker
		for _, p := range live {
			workers = append(workers, p.Worker)
		}
		if s.WouldInterrupt(workers) {
			w.logf("stale: %s", s.Name)
			return false
		}
	}
	w.logf("%s: %d replicas, %s", s.Name, s.Replicas, s.History)
	d.Replicas, d.History = s.Replicas, ParseHistory(s.History.String())
	if fewer {
		w.checkRemovedPods(d, live)
	}
	return true
}

// checkRemovedPods checks the Pods that the controller would remove now. An unreachable worker may have
// messages in flight, because it cannot be drained. A worker that wrongly reports none is idle for the
// operator after a lease: the messages that it has not renewed by then are redelivered.
func (w *simulator) checkRemovedPods(d *simulatedWorkload, live []*simulatedPod) {
	for remaining := slices.Clone(live); int32(len(remaining)) > d.Replicas; {
		removedPod := w.nextPodToRemove(d, remaining)
		remaining = slices.DeleteFunc(remaining, func(p *simulatedPod) bool { return p == removedPod })
		timedOut := w.pool.Spec.Drain.OnTimeout == v1alpha1.DrainRequeue && w.now.Sub(removedPod.DrainingSince) >= w.pool.Spec.Drain.Timeout.Duration.Duration
		leaseExpired := removedPod.reportsNoMessages && w.now.Sub(removedPod.IdleSince) >= simulatedLease
		if len(removedPod.messageEnds) > 0 && !timedOut && !removedPod.unreachable && !leaseExpired {
			w.violationf("%s is removed with %d messages in flight (reports none: %t)", removedPod.Name, len(removedPod.messageEnds), removedPod.reportsNoMessages)
		}
		if w.brokerDown && removedPod.Running {
			w.violationf("%s is removed while the broker is down", removedPod.Name)
		}
	}
}
