package workerpool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const defaultRevisionHistory = 3

type plan struct {
	Actions
	// revisions as planned, newest first, and updated among them.
	revisions []*revisionState
	updated   *revisionState
	busyTimes BusyTimes
}

// planWorkers plans the actions that lead to the number of serving workers of each revision.
func planWorkers(f *fleet, r *rollout) plan {
	p := plan{revisions: f.revisions, updated: f.updated}
	if f.problem == nil {
		p.planRevisions(f, r)
	}
	p.KeepFinalizer = slices.ContainsFunc(p.revisions, func(revision *revisionState) bool {
		return revision.hasWorkers() || !f.isDeleting && revision.newReplicas > 0
	})
	switch {
	case f.isDeleting:
		p.Leave = !p.KeepFinalizer
	case f.problem == nil:
		p.SharedObjects = f.builder.sharedObjects(f.updated, f.NetworkPolicies)
		if f.updated.exists {
			p.CurrentWorkload = f.updated.workload
		}
		keep := ptr.Deref(f.rolloutSpec.RevisionHistory, defaultRevisionHistory)
		for _, revision := range p.revisions { // newest first
			isUsed := revision.newReplicas > 0 || revision.hasWorkers() || revision.Name == f.updated.Name || revision.Name == r.currentRevision
			if !isUsed {
				p.DeleteRevisions = append(p.DeleteRevisions, revision.Name)
			}
		}
		p.DeleteRevisions = p.DeleteRevisions[min(int(keep), len(p.DeleteRevisions)):]
	}
	// A worker that still takes messages while its Pod is terminating has missed the preStop hook and the signal, which
	// the kernel discards if the first process of a container does not handle signals yet. Kubernetes repeats neither
	// before the end of the termination grace period.
	for i := range f.Workers {
		if w := &f.Workers[i]; w.Terminating && w.Stats != nil && !w.Stats.Draining && f.drain.Mode != v1alpha1.DrainSignal {
			p.DrainRequests = append(p.DrainRequests, DrainRequest{Worker: w.Name, Drain: true, Stop: true})
		}
	}
	p.Protections, p.busyTimes = planProtections(&f.Observation, p.DrainStates)
	return p
}

func (p *plan) planRevisions(f *fleet, r *rollout) {
	p.revisions = nil
	for _, before := range f.revisions {
		after := *before
		after.workers = nil
		for _, w := range before.workers {
			after.workers = append(after.workers, new(*w))
		}
		after.newHistory = History{} // only the updated revision keeps a history: later rollouts begin again
		if before == f.updated {
			after.newHistory = r.history
			p.updated = &after
		}
		after.planReplicas(r.serving[before], &f.drain)
		p.revisions = append(p.revisions, &after)
		for _, w := range after.workers {
			if !w.targetDraining.Equal(w.DrainingSince) || !w.targetIdle.Equal(w.IdleSince) || !w.targetRemovable.Equal(w.RemovableSince) {
				isUnprotected := !w.targetRemovable.IsZero() && w.Protection.Active && !w.Protection.Foreign
				p.DrainStates = append(p.DrainStates, DrainState{w.Name, w.targetDraining, w.targetIdle, w.targetRemovable, isUnprotected})
			}
			// A worker whose behavior differs from its state gets a request.
			isDraining, shouldDrain := w.Stats != nil && w.Stats.Draining, !w.targetDraining.IsZero()
			if (w.Running || w.Stats != nil) && f.drain.Mode != v1alpha1.DrainSignal && shouldDrain != isDraining {
				p.DrainRequests = append(p.DrainRequests, DrainRequest{Worker: w.Name, Drain: shouldDrain})
			}
		}
	}
	// Shrinking revisions come first, so that their capacity is free when others grow.
	for _, r := range slices.SortedStableFunc(slices.Values(p.revisions), func(a, b *revisionState) int {
		return cmp.Compare(a.newReplicas-a.Replicas, b.newReplicas-b.Replicas)
	}) {
		if !r.exists || r.newReplicas != r.Replicas || r.newHistory != r.History {
			p.Resizes = append(p.Resizes, r.newSize(&f.drain))
		}
	}
}

// changesCluster reports whether the actions change more than the protection of Pods and shared objects.
func (a *Actions) changesCluster() bool {
	return len(a.DrainStates)+len(a.DrainRequests)+len(a.Resizes)+len(a.DeleteRevisions) > 0 || a.Leave
}

// planReplicas plans the replicas of a revision, and the drain states of its workers, for a target number of serving
// workers.
func (r *revisionState) planReplicas(target int32, rules *drainRules) {
	if r.Ordered {
		r.drainHighestOrdinals(rules.now)
	}
	// A worker that does not answer now keeps its idle time: it takes no messages, and a late answer must not restart the
	// wait for its lease.
	for _, w := range r.workers {
		switch {
		case w.targetDraining.IsZero(), w.Stats != nil && (!w.Stats.Drained || w.Stats.InFlight > 0):
			w.targetIdle = time.Time{}
		case w.Stats != nil && w.targetIdle.IsZero():
			w.targetIdle = rules.now
		}
	}
	removed := r.removableWorkers(rules)
	switch surplus := r.servingWorkers() - target; {
	case removed > 0:
		// The revision grows only after the removable workers are removed: otherwise it would keep them.
		r.newReplicas = min(r.Replicas, r.liveWorkers()-removed)
		return
	case surplus < 0:
		// The worker that was drained last is undrained first.
		lowest := r.lowestRemovableOrdinal()
		candidates := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool { return !w.isUndrainable() || w.Ordinal > lowest })
		slices.SortStableFunc(candidates, func(a, b *workerState) int {
			return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), b.targetDraining.Compare(a.targetDraining), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
		})
		for _, w := range candidates[:min(int(-surplus), len(candidates))] {
			w.targetDraining, w.targetIdle = time.Time{}, time.Time{}
			surplus++
		}
		if lowest == math.MaxInt32 {
			r.newReplicas = max(r.Replicas, r.totalWorkers()-surplus)
		}
	case surplus > 0 && r.CreationFailure != "" && r.uncreatedWorkers() > 0:
		r.newReplicas = r.Replicas - min(r.uncreatedWorkers(), surplus)
		return
	default:
		// Workers that are not created yet are not drained: surplus workers are removed after their creation, before
		// they take messages.
		candidates := slices.DeleteFunc(slices.Clone(r.workers), func(w *workerState) bool { return !w.isServing() })
		slices.SortStableFunc(candidates, compareDrainCost)
		for _, w := range candidates[:min(max(int(surplus-r.uncreatedWorkers()), 0), len(candidates))] {
			w.targetDraining = rules.now
		}
	}
	// Workers that have finished are removed by a later reconciliation that has read the mark from their Pods, because the
	// ReplicaSet controller removes marked Pods first.
	for _, w := range r.workers {
		if w.isUndrainable() && rules.canRemove(w) {
			w.targetRemovable = rules.now
		}
	}
}

// removableWorkers returns how many workers can be removed now: they are marked as removable, have finished, and are
// the first that the workload controller would remove.
func (r *revisionState) removableWorkers(rules *drainRules) int32 {
	order := slices.Clone(r.workers)
	slices.SortStableFunc(order, compareRemovalOrder)
	removable, examined := int32(0), int32(0)
	for i, w := range order {
		if w.RemovableSince.IsZero() || !rules.canRemove(w) {
			break
		}
		examined++
		// The controller may remove either of two equal workers.
		if i+1 == len(order) || compareRemovalOrder(w, order[i+1]) < 0 {
			removable = examined
		}
	}
	return removable
}

// drainHighestOrdinals drains the highest ordinals of a StatefulSet, which it removes first. A worker that was
// recreated after its node failed may have a higher ordinal than a draining worker: then they change roles.
func (r *revisionState) drainHighestOrdinals(now time.Time) {
	slices.SortFunc(r.workers, func(a, b *workerState) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	lowest := r.lowestRemovableOrdinal()
	for i, w := range r.workers {
		if !w.isServing() {
			continue
		}
		if w.Ordinal > lowest {
			w.targetDraining = now
			continue
		}
		lower := slices.IndexFunc(r.workers[i:], (*workerState).isUndrainable)
		if lower < 0 {
			return
		}
		w.targetDraining = now
		r.workers[i+lower].targetDraining, r.workers[i+lower].targetIdle = time.Time{}, time.Time{}
	}
}

func (r *revisionState) newSize(rules *drainRules) RevisionSize {
	size := RevisionSize{Name: r.Name, Replicas: r.newReplicas, History: r.newHistory}
	if !r.exists {
		size.NewWorkload = r.workload
	}
	for _, w := range r.workers {
		if w.RemovableSince.IsZero() || !rules.canRemove(w) {
			continue
		}
		size.Removable = append(size.Removable, w.Name)
		if !w.Running {
			size.Unstarted = append(size.Unstarted, w.Name)
		}
	}
	order := slices.Clone(r.workers)
	slices.SortStableFunc(order, compareRemovalOrder)
	for _, w := range order[:max(0, len(order)-int(r.newReplicas))] {
		// It has reported that it has no messages, unlike a worker that is stopped after its timeout.
		hasFinished := !w.IdleSince.IsZero() && (w.Stats == nil || w.Stats.Drained && w.Stats.InFlight == 0)
		if r.SidecarImage != "" && rules.endsSoon && hasFinished && slices.Contains(size.Removable, w.Name) {
			size.Finished = append(size.Finished, w.Name)
		}
	}
	return size
}

// EndGrace is how long the application of a finished worker with a sidecar may take to end. It has no messages, and may ignore SIGTERM, as
// the first process of a container does by default: its Pod would keep its node's resources for the grace period of an evicted worker.
const EndGrace = 5 * time.Second

// WouldInterrupt reports whether setting the replicas of a revision with these workers might remove a worker that is
// not removable. The caller lists the workers from the API server, because the cache may be stale.
func (s *RevisionSize) WouldInterrupt(workers []Worker) bool {
	var live []*workerState
	for i := range workers {
		if !workers[i].Terminating {
			live = append(live, &workerState{Worker: &workers[i]})
		}
	}
	removed := len(live) - int(s.Replicas)
	if removed <= 0 {
		return false
	}
	slices.SortStableFunc(live, compareRemovalOrder)
	for _, w := range live {
		if compareRemovalOrder(live[removed-1], w) < 0 {
			return false // this worker comes after all workers that will be removed
		}
		removable := slices.Contains(s.Removable, w.Name)
		started := w.Running && slices.Contains(s.Unstarted, w.Name)
		if !removable || started || w.RemovableSince.IsZero() {
			return true
		}
	}
	return false
}

// compareRemovalOrder is the relevant part of the order in which workload controllers remove Pods. A StatefulSet removes
// the highest ordinal first. A ReplicaSet, whose Pods all have the ordinal 0, removes unassigned, pending and unready Pods
// first, then by deletion cost, which is lowest for removable workers.
func compareRemovalOrder(a, b *workerState) int {
	return cmp.Or(
		cmp.Compare(b.Ordinal, a.Ordinal),
		decision.CompareTrueFirst(!a.Assigned, !b.Assigned),
		decision.CompareTrueFirst(a.Pending, b.Pending),
		decision.CompareTrueFirst(!a.IsReady(), !b.IsReady()),
		decision.CompareTrueFirst(!a.RemovableSince.IsZero(), !b.RemovableSince.IsZero()),
	)
}

// compareDrainCost is the order in which workers are selected for draining: first as the workload controller removes
// Pods, then idle workers, then the youngest.
func compareDrainCost(a, b *workerState) int {
	return cmp.Or(
		cmp.Compare(b.Ordinal, a.Ordinal),
		decision.CompareTrueFirst(!a.Assigned, !b.Assigned),
		decision.CompareTrueFirst(a.Pending, b.Pending),
		decision.CompareTrueFirst(!a.Running, !b.Running),
		decision.CompareTrueFirst(!a.IsReady(), !b.IsReady()),
		decision.CompareTrueFirst(a.Stats != nil && a.Stats.InFlight == 0, b.Stats != nil && b.Stats.InFlight == 0),
		b.Created.Compare(a.Created),
		cmp.Compare(a.Name, b.Name),
	)
}

// defaultLease is the lease of messages if the broker does not report one.
const defaultLease = 30 * time.Second

// drainRules determine which workers can be removed.
type drainRules struct {
	v1alpha1.Drain
	now time.Time
	// stats of the queues; nil if they could not be read.
	stats *QueueStats
	// workers of all revisions.
	workers []Worker
	// endsSoon is true if finished workers end with EndGrace, because the user has not set their grace period.
	endsSoon bool
	// isAbandoned is true if a user abandoned draining of a pool that is being deleted.
	isAbandoned bool
}

// canRemove reports whether removing a draining worker loses no message.
func (r *drainRules) canRemove(w *workerState) bool {
	switch {
	case !w.Running && w.Stats == nil, r.isAbandoned:
		return true
	case r.stats == nil:
		return false
	case r.Mode == v1alpha1.DrainSignal, // SIGTERM drains the worker
		r.OnTimeout == v1alpha1.DrainRequeue && r.hasTimedOut(w):
		return true
	}
	if w.Stats != nil && (!w.Stats.Drained || w.Stats.InFlight > 0) {
		return false
	}
	// The broker may also count messages of workers that no longer exist, so only for one lease does it matter that the
	// other workers do not report all messages in flight.
	othersHoldAll := !r.stats.InFlightKnown || r.stats.InFlight <= reportedInFlight(r.workers, w.Name)
	// The broker has redelivered all messages that were leased before.
	isLeaseOver := func(since time.Time) bool { return r.now.Sub(since) >= cmp.Or(max(r.stats.Lease, 0), defaultLease) }
	if w.Stats == nil {
		// Without an answer, only the broker's count is known. After a lease, the broker has redelivered the messages
		// of a worker that no longer runs.
		return r.stats.InFlightKnown && othersHoldAll && isLeaseOver(w.targetDraining)
	}
	// If the broker's count includes retries, only the worker's report shows that it has no messages.
	return r.stats.RetriesInFlight || othersHoldAll || !w.targetIdle.IsZero() && isLeaseOver(w.targetIdle)
}

// reportedInFlight returns how many messages the workers report that the broker counts as in flight, except one worker.
func reportedInFlight(workers []Worker, except string) int64 {
	reported := int64(0)
	for i := range workers {
		if stats := workers[i].Stats; stats != nil && workers[i].Name != except {
			reported += max(stats.InFlight, 0) + max(stats.Prefetched, 0)
		}
	}
	return reported
}

func (r *drainRules) hasTimedOut(w *workerState) bool {
	return !w.targetDraining.IsZero() && r.now.Sub(w.targetDraining) >= r.Timeout.Duration.Duration
}

const (
	// AnnotationSafeToEvict on a Pod keeps the cluster autoscaler from removing its node if it is "false".
	AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// AnnotationDoNotDisrupt on a Pod keeps Karpenter from removing its node if it is "true".
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	// AnnotationProtection on a Pod is the time of the last write of its protection.
	AnnotationProtection = v1alpha1.Prefix + "protection"
)

const (
	// protectionInterval is the shortest time between two writes of the protection of a Pod.
	protectionInterval = 10 * time.Second
	// unprotectDelay is how long a worker must be idle before it loses its protection.
	unprotectDelay = 30 * time.Second
)

// Protection of a worker's Pod from the removal of its node, as written on the Pod.
type Protection struct {
	// Foreign is true if another client set the annotations, which are then not changed.
	Foreign bool
	Active  bool
	// Written is the time of the last write; zero if never.
	Written time.Time
}

// ProtectionChange is a change to write on a Pod at the time of the decision.
type ProtectionChange struct {
	Worker string
	Active bool
	Time   time.Time
}

// BusyTimes are the times at which workers were last observed busy, by Pod. They are not stored: when the operator
// restarts, protected workers count as busy.
type BusyTimes map[string]time.Time

// planProtections returns the changes of protections, and when workers were busy. A Pod whose drain state is written
// gets another version, so the next decision changes its protection.
func planProtections(in *Observation, drainStates []DrainState) ([]ProtectionChange, BusyTimes) {
	var changes []ProtectionChange
	busyTimes := BusyTimes{}
	// The broker has, or may have, messages in flight that no worker reports.
	mayBeBusy := in.Stats == nil || !in.Stats.InFlightKnown || in.Stats.InFlight > reportedInFlight(in.Workers, "")
	for i := range in.Workers {
		w := &in.Workers[i]
		if w.Terminating || w.Protection.Foreign {
			continue
		}
		// A worker is busy if it has messages in flight. A worker that does not answer and was ready before is busy if
		// messages that no worker reports may exist.
		hasServed := !w.ReadySince.IsZero() || !w.DrainingSince.IsZero() || w.Protection.Active
		busy := w.Stats == nil && w.Running && hasServed && mayBeBusy || w.Stats != nil && w.Stats.InFlight > 0
		lastBusy, known := in.BusyTimes[w.Name]
		if busy || w.Protection.Active && (!known || lastBusy.After(in.Now)) {
			lastBusy = in.Now
		}
		if !lastBusy.IsZero() {
			busyTimes[w.Name] = lastBusy
		}
		active := busy || w.Protection.Active && in.Now.Sub(lastBusy) < unprotectDelay
		changesDrain := slices.ContainsFunc(drainStates, func(s DrainState) bool { return s.Worker == w.Name })
		mayWrite := in.Now.Sub(w.Protection.Written).Abs() >= protectionInterval // a time in the future is from another clock
		if active != w.Protection.Active && mayWrite && !changesDrain {
			changes = append(changes, ProtectionChange{w.Name, active, in.Now})
		}
	}
	return changes, busyTimes
}
