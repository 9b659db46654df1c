package pool

import (
	"errors"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// errInterrupted ends a pass of the simulated operator: a crash, a conflict.
var errInterrupted = errors.New("pass ended")

// reconcileOnce plays one pass of the operator, as the reconciler makes it: observe, decide, record,
// act, with a chance of a crash between any two requests.
func (w *simulator) reconcileOnce() Decision {
	in := w.observeCluster()
	plan := Decide(in)
	w.checkDecision(&in, &plan)
	if w.executeDecision(&in, &plan) != nil {
		return Decision{KeepFinalizer: false} // it did not get on
	}
	return plan
}

func (w *simulator) observeCluster() Observation {
	in := Observation{
		Pool: w.pool.DeepCopy(), Now: w.now,
		Memory: scaling.RestoreMemory(w.pool.Status.Scaling),
		Config: WorkerConfig{File: "x"},
	}
	in.Revisions = slices.Clone(w.cache.revisions)
	in.Workers = slices.Clone(w.cache.workers)
	for i := range in.Workers {
		in.Workers[i].Stats = w.workerStats(in.Workers[i].Name)
	}
	if w.brokerDown {
		in.StatsError = "the broker is down"
		return in
	}
	in.Stats = &QueueStats{InFlightKnown: true, Lease: simulatedLease}
	in.Stats.Backlog = w.backlog
	in.Stats.InFlight = int64(len(w.lostLeaseEnds)) + w.retrying
	for _, p := range w.pods {
		in.Stats.InFlight += int64(len(p.messageEnds))
	}
	return in
}

// workerStats are what a worker says of itself.
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
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (w *simulator) checkDecision(in *Observation, plan *Decision) {
	before := w.pool.Status
	if in.Stats == nil && w.pool.Spec.Autoscaling != nil && plan.Status.Desired < min(before.Desired, w.pool.Spec.Autoscaling.MaxReplicas) {
		w.violationf("scaled down to %d without figures", plan.Status.Desired)
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
	// One that leaves is replaced: it may take until its broker answers.
	surge := countOrPercent(w.pool.Spec.Rollout.MaxSurge, defaultMaxSurge, plan.Status.Desired, true)
	for i := range in.Workers {
		if !in.Workers[i].RemovableSince.IsZero() {
			surge++
		}
	}
	if total > max(was, plan.Status.Desired+surge) {
		w.violationf("%d workers where %d are wanted, with a surge of %d", total, plan.Status.Desired, surge)
	}
}

// maybeCrash may end the process between two requests.
func (w *simulator) maybeCrash() bool {
	if w.calm || !w.randomChance(3) {
		return false
	}
	w.logf("operator crashes")
	w.crashes++
	return true
}

func (w *simulator) executeDecision(in *Observation, plan *Decision) error {
	if w.maybeCrash() {
		return errInterrupted
	}
	w.pool = w.pool.DeepCopy()
	w.pool.Status = plan.Status
	for _, m := range plan.DrainStates {
		if w.maybeCrash() || !w.writeDrainState(in, m) {
			return errInterrupted
		}
	}
	for _, ask := range plan.DrainRequests {
		if w.maybeCrash() {
			return errInterrupted
		}
		if p := w.findPod(ask.Worker); p != nil && !p.unreachable && !p.Terminating {
			w.logf("ask %s: drain %t", p.Name, ask.Drain)
			p.isDraining = ask.Drain
		}
	}
	for _, size := range plan.Resizes {
		if w.maybeCrash() || !w.resizeRevision(size) {
			return errInterrupted
		}
	}
	for _, name := range plan.DeleteRevisions {
		if d := w.deployments[name]; d.Replicas > 0 || len(w.livePods(d.Hash)) > 0 {
			w.violationf("%s is removed with its workers", name)
		}
		delete(w.deployments, name)
	}
	return nil
}

// writeDrainState writes on a Pod, over the version that was read.
func (w *simulator) writeDrainState(in *Observation, m DrainState) bool {
	p := w.findPod(m.Worker)
	i := slices.IndexFunc(in.Workers, func(worker Worker) bool { return worker.Name == m.Worker })
	seen := in.Workers[i]
	seen.Stats = nil
	if p == nil || p.Worker != seen {
		w.logf("conflict: %s", m.Worker)
		return false
	}
	w.logf("mark %s: draining %s, leaving %s", m.Worker, formatClock(m.DrainingSince), formatClock(m.RemovableSince))
	p.DrainingSince, p.IdleSince, p.RemovableSince = m.DrainingSince, m.IdleSince, m.RemovableSince
	p.version++
	return true
}

func formatClock(t time.Time) string {
	if t.IsZero() {
		return "no"
	}
	return t.Format("04:05")
}

// resizeRevision changes the replicas of a revision, after a live read of its workers if they are
// to be fewer.
func (w *simulator) resizeRevision(s RevisionSize) bool {
	d := w.deployments[s.Name]
	if d == nil {
		if s.NewWorkload == nil {
			return false // somebody removed it
		}
		d = &simulatedWorkload{Revision{Name: s.Name, Hash: s.NewWorkload.GetLabels()[LabelRevision], Created: w.now.Truncate(time.Second), Ordered: s.Ordered}}
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
	d.Replicas, d.History = s.Replicas, s.History
	if fewer {
		w.checkRemovedPods(d, live)
	}
	return true
}

// checkRemovedPods checks the Pods that would be removed at once. One that does not respond
// cannot be made to take nothing: only what the broker said is known of it. And one that
// lies is believed after a lease: what it does not renew by then is no more its own.
func (w *simulator) checkRemovedPods(d *simulatedWorkload, live []*simulatedPod) {
	for left := slices.Clone(live); int32(len(left)) > d.Replicas; {
		victim := w.nextPodToRemove(d, left)
		left = slices.DeleteFunc(left, func(p *simulatedPod) bool { return p == victim })
		timedOut := w.pool.Spec.Drain.OnTimeout == v1alpha1.DrainRequeue && w.now.Sub(victim.DrainingSince) >= w.pool.Spec.Drain.Timeout.Duration.Duration
		believed := victim.reportsNoMessages && w.now.Sub(victim.IdleSince) >= simulatedLease
		if len(victim.messageEnds) > 0 && !timedOut && !victim.unreachable && !believed {
			w.violationf("%s is to go, with %d messages in flight (liar: %t)", victim.Name, len(victim.messageEnds), victim.reportsNoMessages)
		}
		if w.brokerDown && victim.Running {
			w.violationf("%s is to go while the broker is down", victim.Name)
		}
	}
}
