package workerpool

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The simulation tests the core with random events in a cluster and its broker: messages arrive and are processed; workers start, become
// ready, hang, report wrong stats, restart and are lost with their nodes; the broker is unreachable for a while; the operator reads stale
// caches and crashes between any two requests; the user changes the spec. In every case:
//
//   - the replicas of a revision are not reduced while that would remove a worker with messages in
//     flight, unless its drain timed out,
//   - the pool does not scale down while the broker is unreachable,
//   - the number of workers does not exceed the maximum plus the surge,
//   - and once the disturbances end, the pool has the desired number of workers, all of the newest
//     revision, or none of it if it failed more often by chance, and does not change any more.
//
// POOL_RUNS is the number of simulated clusters and POOL_SEED the first seed, to repeat a run.
func TestSimulationRemovesNoBusyWorker(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.NumberFromEnv(t, "POOL_RUNS", 500), testbuilder.NumberFromEnv(t, "POOL_SEED", 1)
	var next, removed, crashes, rollouts atomic.Int64
	next.Store(int64(first) - 1)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := newSimulator(uint64(seed))
				w.simulate()
				for _, violation := range w.violations {
					t.Errorf("seed %d: %s\n%s", seed, violation, strings.Join(w.log, "\n"))
				}
				removed.Add(w.removed)
				crashes.Add(w.crashes)
				rollouts.Add(w.rollouts)
			}
		})
	}
	group.Wait()
	t.Logf("%d runs: %d workers removed, %d crashes, %d rollouts", runs, removed.Load(), crashes.Load(), rollouts.Load())
	require.True(t, removed.Load() != 0 && crashes.Load() != 0 && rollouts.Load() != 0, "too few events occurred for a meaningful test")
}

// simulator is a cluster with one pool and its broker.
type simulator struct {
	rng  *rand.Rand
	now  time.Time
	pool *v1alpha1.WorkerPool

	deployments map[string]*simulatedWorkload
	pods        []*simulatedPod
	// cachedRevisions and cachedWorkers are the state that the operator reads; it may be stale.
	cachedRevisions []Revision
	cachedWorkers   []Worker

	backlog int64
	// lostLeaseEnds are the times at which the leases of lost workers' messages expire.
	lostLeaseEnds []time.Time
	// retrying is the number of messages without a worker that the broker counts as in flight. They wait for a retry if retriesInFlight is true.
	retrying        int64
	retriesInFlight bool
	brokerDown      bool

	noDisturbances bool
	podsCreated    int
	log            []string
	violations     []string
	removed        int64
	crashes        int64
	rollouts       int64
	// scalingMemory and rolloutMemory are in the memory of the operator.
	scalingMemory scaling.Memory
	rolloutMemory RolloutMemory
}

type simulatedWorkload struct{ Revision }

// simulatedPod is a Pod and its worker process.
type simulatedPod struct {
	Worker
	version int
	readyAt time.Time
	// messageEnds are the times at which the messages in flight are done.
	messageEnds []time.Time
	isDraining  bool
	succeeded   int64
	failed      int64
	// reportsNoMessages makes the worker report that nothing is in flight. An unreachable worker neither responds nor drains.
	reportsNoMessages, unreachable bool
}

const simulatedLease = 30 * time.Second

func newSimulator(seed uint64) *simulator {
	w := &simulator{
		rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), deployments: map[string]*simulatedWorkload{},
	}
	w.retriesInFlight = w.randomChance(50)
	w.pool = &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "pool", Generation: 1}}
	spec := &w.pool.Spec
	spec.Image, spec.Concurrency = "image:0", 2
	spec.Workload = v1alpha1.WorkloadDeployment
	if w.randomChance(30) {
		spec.Workload = v1alpha1.WorkloadStatefulSet
	}
	w.pool.Spec.Rollout = &v1alpha1.Rollout{}
	switch w.rng.IntN(4) {
	case 0:
		spec.Rollout.Strategy = v1alpha1.RolloutRecreate
	case 1:
		spec.Rollout.Strategy = v1alpha1.RolloutCanary
		spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 20, Pause: durationSeconds(10)}, {Percent: 50}}
		spec.Rollout.Analysis = &v1alpha1.RolloutAnalysis{MinSamples: 3, MaxFailureRatioIncreasePercent: new(int32(100))}
	}
	if w.randomChance(30) {
		spec.Rollout.MaxSurge, spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	}
	spec.Drain = &v1alpha1.Drain{Timeout: durationSeconds(600)}
	if w.randomChance(20) {
		spec.Drain.Timeout, spec.Drain.OnTimeout = durationSeconds(15), v1alpha1.DrainRequeue
	}
	if w.randomChance(50) {
		spec.Replicas = new(int32(w.rng.IntN(8)))
	} else {
		spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: int32(w.rng.IntN(3)), MaxReplicas: 3 + int32(w.rng.IntN(8)), IdleAfter: durationSeconds(20)}
	}
	w.refreshCache()
	return w
}

func durationSeconds(seconds int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(seconds) * time.Second}}
}

func (w *simulator) randomChance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *simulator) logf(format string, args ...any) {
	w.log = append(w.log, w.now.Format("04:05 ")+fmt.Sprintf(format, args...))
}

func (w *simulator) violationf(format string, args ...any) {
	w.logf("VIOLATION "+format, args...)
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// simulate applies random events, then continues without disturbances until nothing changes.
func (w *simulator) simulate() {
	for range 60 + w.rng.IntN(100) {
		w.randomEvent()
		w.reconcileOnce()
	}
	w.noDisturbances, w.brokerDown, w.retrying = true, false, 0
	for _, p := range w.pods {
		p.unreachable, p.reportsNoMessages = false, false
	}
	unchanged := 0
	for range 600 {
		w.now = w.now.Add(2 * time.Second)
		if s := &w.pool.Status; s.CurrentRevision != s.UpdatedRevision && w.randomChance(30) && w.backlog < 5 {
			w.backlog += 2 // a revision needs messages to be proven
		}
		w.processMessages()
		w.runWorkloadControllers()
		w.refreshCache()
		if plan := w.reconcileOnce(); !plan.changesCluster() && w.isSettled() {
			unchanged++
			if unchanged > 5 {
				return
			}
			continue
		}
		unchanged = 0
	}
	for _, p := range w.pods {
		w.logf("left: %+v, %d jobs, drains %t", p.Worker, len(p.messageEnds), p.isDraining)
	}
	w.violationf("it does not settle: desired %d, %d Pods, current %s, updated %s, %+v", w.pool.Status.Desired, len(w.pods),
		w.pool.Status.CurrentRevision, w.pool.Status.UpdatedRevision, w.pool.Status.Conditions)
}

// isSettled reports whether the simulation has reached its final state.
func (w *simulator) isSettled() bool {
	s := &w.pool.Status
	if s.Desired == 0 { // the revision is proven once there are messages again
		return len(w.pods) == 0
	}
	rolledBack := decision.FindReason(s.Conditions, v1alpha1.ConditionProgressing, v1alpha1.ReasonAnalysisFailed) != nil
	if !rolledBack && s.CurrentRevision != s.UpdatedRevision || s.Desired != int32(len(w.pods)) {
		return false
	}
	for _, p := range w.pods {
		if (childObjectName("sim", p.Revision) == s.UpdatedRevision) == rolledBack || !p.DrainingSince.IsZero() || p.isDraining || p.Terminating {
			return false
		}
	}
	return true
}

// randomEvent applies a random event and advances the time.
func (w *simulator) randomEvent() {
	w.now = w.now.Add(time.Duration(500+w.rng.IntN(3500)) * time.Millisecond)
	switch dice := w.rng.IntN(100); {
	case dice < 20:
		w.backlog += int64(w.rng.IntN(30))
	case dice < 24:
		w.changeSpec("image", func(spec *v1alpha1.WorkerPoolSpec) { spec.Image = fmt.Sprintf("image:%d", w.rng.IntN(4)) })
		w.rollouts++
	case dice < 32:
		w.changeSpec("size", func(spec *v1alpha1.WorkerPoolSpec) {
			if spec.Replicas != nil {
				spec.Replicas = new(int32(w.rng.IntN(10)))
				return
			}
			spec.Autoscaling.MinReplicas = int32(w.rng.IntN(3))
		})
	case dice < 36:
		w.brokerDown = !w.brokerDown
		w.logf("broker down: %t", w.brokerDown)
	case dice < 40:
		w.retrying = int64(w.rng.IntN(3))
	case dice < 46 && len(w.pods) > 0:
		w.disturbPod(w.pods[w.rng.IntN(len(w.pods))])
	}
	w.processMessages()
	if w.randomChance(70) {
		w.runWorkloadControllers()
	}
	if w.randomChance(80) {
		w.refreshCache()
	}
}

func (w *simulator) changeSpec(description string, change func(*v1alpha1.WorkerPoolSpec)) {
	w.pool = w.pool.DeepCopy()
	change(&w.pool.Spec)
	w.pool.Generation++
	w.logf("user: %s", description)
}

func (w *simulator) disturbPod(p *simulatedPod) {
	switch w.rng.IntN(6) {
	case 0:
		w.logf("node of %s fails", p.Name)
		w.removePod(p)
	case 1:
		w.logf("%s restarts", p.Name)
		w.loseMessages(p)
		p.isDraining = p.Terminating
	case 2:
		w.logf("%s is not ready", p.Name)
		p.ReadySince, p.readyAt = time.Time{}, w.now.Add(10*time.Second)
		p.version++
	case 3:
		w.logf("%s is deleted", p.Name)
		p.Terminating, p.isDraining = true, true
		p.version++
	case 4:
		// If the broker's count includes retries, only the worker can say what it has.
		p.reportsNoMessages = !p.reportsNoMessages && !w.retriesInFlight
		w.logf("%s reports no messages: %t", p.Name, p.reportsNoMessages)
	case 5:
		p.unreachable = !p.unreachable
		w.logf("%s is unreachable: %t", p.Name, p.unreachable)
	}
}

// loseMessages ends a worker's process; its messages stay leased until their leases expire.
func (w *simulator) loseMessages(p *simulatedPod) {
	for range p.messageEnds {
		w.lostLeaseEnds = append(w.lostLeaseEnds, w.now.Add(simulatedLease))
	}
	p.messageEnds = nil
}

func (w *simulator) removePod(p *simulatedPod) {
	w.loseMessages(p)
	w.pods = slices.DeleteFunc(slices.Clone(w.pods), func(other *simulatedPod) bool { return other == p })
}

// processMessages advances the broker and the workers to the current time.
func (w *simulator) processMessages() {
	lost := len(w.lostLeaseEnds)
	w.lostLeaseEnds = slices.DeleteFunc(w.lostLeaseEnds, func(end time.Time) bool { return !end.After(w.now) })
	w.backlog += int64(lost - len(w.lostLeaseEnds))
	for _, p := range w.pods { // removePod changes a copy
		w.processPodMessages(p)
	}
}

func (w *simulator) processPodMessages(p *simulatedPod) {
	if p.Pending && (w.noDisturbances || w.randomChance(60)) {
		p.Assigned, p.Pending, p.Running = true, false, true
		p.readyAt = w.now.Add(time.Duration(w.rng.IntN(5)) * time.Second)
		p.version++
	}
	if p.Running && p.ReadySince.IsZero() && !p.readyAt.After(w.now) {
		p.ReadySince = w.now.Truncate(time.Second)
		p.version++
	}
	var jobs []time.Time
	for _, end := range p.messageEnds {
		switch {
		case end.After(w.now) || w.brokerDown:
			jobs = append(jobs, end)
		case w.randomChance(10):
			p.failed++
		default:
			p.succeeded++
		}
	}
	p.messageEnds = jobs
	for len(p.messageEnds) < 2 && p.Running && !p.isDraining && !w.brokerDown && w.backlog > 0 {
		w.backlog--
		longest := 60
		if p.reportsNoMessages { // its messages are redelivered after the lease
			longest = int(simulatedLease.Seconds()) - 5
		}
		p.messageEnds = append(p.messageEnds, w.now.Add(time.Duration(1+w.rng.IntN(longest))*time.Second))
	}
	if p.Terminating && len(p.messageEnds) == 0 {
		w.removePod(p)
	}
}

// runWorkloadControllers simulates the controllers of Deployments and StatefulSets.
func (w *simulator) runWorkloadControllers() {
	for _, d := range w.deployments {
		for live := w.livePods(d.Hash); int32(len(live)) > d.Replicas; live = w.livePods(d.Hash) {
			removedPod := w.nextPodToRemove(d, live)
			w.logf("%s is removed, with %d in flight", removedPod.Name, len(removedPod.messageEnds))
			removedPod.Terminating, removedPod.isDraining = true, true
			removedPod.version++
			w.removed++
		}
		for int32(len(w.livePods(d.Hash))) < d.Replicas {
			w.createPod(d)
		}
	}
}

func (w *simulator) livePods(hash string) (live []*simulatedPod) {
	for _, p := range w.pods {
		if p.Revision == hash && !p.Terminating {
			live = append(live, p)
		}
	}
	return live
}

// nextPodToRemove returns the Pod that the controller removes next, a random one of equals.
func (w *simulator) nextPodToRemove(d *simulatedWorkload, live []*simulatedPod) *simulatedPod {
	best := live[w.rng.IntN(len(live))]
	for _, p := range live {
		switch {
		case d.Ordered && p.Ordinal > best.Ordinal:
			best = p
		case !d.Ordered && compareRemovalOrder(&workerState{Worker: &p.Worker}, &workerState{Worker: &best.Worker}) < 0:
			best = p
		}
	}
	return best
}

func (w *simulator) createPod(d *simulatedWorkload) {
	w.podsCreated++
	p := &simulatedPod{Worker: Worker{Name: fmt.Sprintf("pod-%d", w.podsCreated), Revision: d.Hash, Created: w.now.Truncate(time.Second), Pending: true}}
	isTaken := func(other *simulatedPod) bool { return other.Revision == d.Hash && other.Ordinal == p.Ordinal }
	for d.Ordered && slices.ContainsFunc(w.pods, isTaken) {
		p.Ordinal++
	}
	w.pods = append(w.pods, p)
	w.logf("%s is created for %s", p.Name, d.Name)
}

// refreshCache updates the cache to the current state.
func (w *simulator) refreshCache() {
	w.cachedRevisions, w.cachedWorkers = nil, nil
	for _, d := range w.deployments {
		w.cachedRevisions = append(w.cachedRevisions, d.Revision)
	}
	for _, p := range w.pods {
		w.cachedWorkers = append(w.cachedWorkers, p.Worker)
	}
}

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

// checkRemovedPods checks the Pods that the controller would remove now. An unreachable worker may have messages in flight, because it cannot be
// drained. A worker that wrongly reports none is idle for the operator after a lease: the messages that it has not renewed by then are redelivered.
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
