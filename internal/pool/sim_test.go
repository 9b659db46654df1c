package pool

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// The property test plays a cluster with its broker against the core, at random: messages
// come and are worked on; workers start, get ready, hang, lie about what they do, restart
// and die with their nodes; the broker cannot be reached for a while; the operator reads
// stale caches, and crashes between any two of its requests; the user changes the spec.
// Whatever happens:
//
//   - a revision is never asked for fewer replicas while a worker that would go for that
//     has messages in flight, unless it timed out,
//   - nothing is scaled down while the broker cannot be asked,
//   - there are never more workers than the maximum and the surge,
//   - and once the world calms down all workers are of the newest revision, and as many as
//     they should be, and nothing more is done.
//
// POOL_RUNS sets how many clusters are played, and POOL_SEED the first seed, to play one
// again.
func TestWhateverHappensNoBusyWorkerIsRemoved(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.Number(t, "POOL_RUNS", 1500), testbuilder.Number(t, "POOL_SEED", 1)
	var next, removed, crashes, rollouts atomic.Int64
	next.Store(int64(first) - 1)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := newWorld(uint64(seed))
				w.play()
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
	if removed.Load() == 0 || crashes.Load() == 0 || rollouts.Load() == 0 {
		t.Error("the world was too calm to tell anything")
	}
}

// world is a cluster with one pool and its broker.
type world struct {
	rng  *rand.Rand
	now  time.Time
	pool *v1alpha1.WorkerPool

	deployments map[string]*deployment
	pods        []*pod
	// seen is what a cache that lags still shows.
	seen snapshot

	backlog int64
	// lost are when the leases of messages end whose workers are gone.
	lost []time.Time
	// retrying messages are counted as in flight, and with nobody.
	retrying int64
	down     bool

	calm       bool
	made       int
	log        []string
	violations []string
	removed    int64
	crashes    int64
	rollouts   int64
}

type snapshot struct {
	revisions []Revision
	workers   []Worker
}

type deployment struct{ Revision }

// pod is one with the process in it.
type pod struct {
	Worker
	version int
	readyAt time.Time
	// jobs are when each will end.
	jobs      []time.Time
	drains    bool
	succeeded int64
	failed    int64
	// liar says that it has nothing in flight; deaf neither answers nor drains.
	liar, deaf bool
}

const simLease = 30 * time.Second

func newWorld(seed uint64) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		deployments: map[string]*deployment{},
	}
	w.pool = &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "pool", Generation: 1}}
	spec := &w.pool.Spec
	spec.Image, spec.Concurrency = "image:0", 2
	spec.Workload = v1alpha1.WorkloadDeployment
	if w.chance(30) {
		spec.Workload = v1alpha1.WorkloadStatefulSet
	}
	w.pool.Spec.Rollout = &v1alpha1.Rollout{}
	switch w.rng.IntN(4) {
	case 0:
		spec.Rollout.Strategy = v1alpha1.RolloutRecreate
	case 1:
		spec.Rollout.Strategy = v1alpha1.RolloutCanary
		spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 20, Pause: simDuration(10)}, {Percent: 50}}
		spec.Rollout.Analysis = &v1alpha1.RolloutAnalysis{MinSamples: 3, MaxFailureRatioIncreasePercent: new(int32(100))}
	}
	if w.chance(30) {
		spec.Rollout.MaxSurge, spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	}
	spec.Drain = &v1alpha1.Drain{Timeout: simDuration(600)}
	if w.chance(20) {
		spec.Drain.Timeout, spec.Drain.OnTimeout = simDuration(15), v1alpha1.DrainRequeue
	}
	if w.chance(50) {
		spec.Replicas = new(int32(w.rng.IntN(8)))
	} else {
		spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: int32(w.rng.IntN(3)), MaxReplicas: 3 + int32(w.rng.IntN(8)), IdleAfter: simDuration(20)}
	}
	w.remember()
	return w
}

func simDuration(seconds int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(seconds) * time.Second}}
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.note("VIOLATION "+format, args...)
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// play runs the world wild for a while, then calm until nothing moves.
func (w *world) play() {
	for range 60 + w.rng.IntN(100) {
		w.happen()
		w.pass()
	}
	w.calm, w.down, w.retrying = true, false, 0
	for _, p := range w.pods {
		p.deaf, p.liar = false, false
	}
	quiet := 0
	for range 600 {
		w.now = w.now.Add(2 * time.Second)
		if s := &w.pool.Status; s.CurrentRevision != s.UpdatedRevision && w.chance(30) && w.backlog < 5 {
			w.backlog += 2 // without work no revision proves itself
		}
		w.work()
		w.workload()
		w.remember()
		if plan := w.pass(); !plan.acts() && w.atRest() {
			quiet++
			if quiet > 5 {
				return
			}
			continue
		}
		quiet = 0
	}
	for _, p := range w.pods {
		w.note("left: %+v, %d jobs, drains %t", p.Worker, len(p.jobs), p.drains)
	}
	w.violate("it never comes to rest: desired %d, %d Pods, current %s, updated %s, %+v", w.pool.Status.Desired, len(w.pods),
		w.pool.Status.CurrentRevision, w.pool.Status.UpdatedRevision, w.pool.Status.Conditions)
}

// atRest tells whether all is as it should be in the end.
func (w *world) atRest() bool {
	s := &w.pool.Status
	if s.Desired == 0 { // a revision proves itself when there is work again
		return len(w.pods) == 0
	}
	if s.CurrentRevision != s.UpdatedRevision || s.Desired != int32(len(w.pods)) {
		return false
	}
	for _, p := range w.pods {
		if RevisionName("sim", p.Revision) != s.UpdatedRevision || !p.Draining.IsZero() || p.drains || p.Terminating {
			return false
		}
	}
	return true
}

// happen lets the world do something.
func (w *world) happen() {
	w.now = w.now.Add(time.Duration(500+w.rng.IntN(3500)) * time.Millisecond)
	switch dice := w.rng.IntN(100); {
	case dice < 20:
		w.backlog += int64(w.rng.IntN(30))
	case dice < 24:
		w.change("image", func(spec *v1alpha1.WorkerPoolSpec) { spec.Image = fmt.Sprintf("image:%d", w.rng.IntN(4)) })
		w.rollouts++
	case dice < 32:
		w.change("size", func(spec *v1alpha1.WorkerPoolSpec) {
			if spec.Replicas != nil {
				spec.Replicas = new(int32(w.rng.IntN(10)))
				return
			}
			spec.Autoscaling.MinReplicas = int32(w.rng.IntN(3))
		})
	case dice < 36:
		w.down = !w.down
		w.note("broker down: %t", w.down)
	case dice < 40:
		w.retrying = int64(w.rng.IntN(3))
	case dice < 46 && len(w.pods) > 0:
		w.disturb(w.pods[w.rng.IntN(len(w.pods))])
	}
	w.work()
	if w.chance(70) {
		w.workload()
	}
	if w.chance(80) {
		w.remember()
	}
}

func (w *world) change(what string, change func(*v1alpha1.WorkerPoolSpec)) {
	w.pool = w.pool.DeepCopy()
	change(&w.pool.Spec)
	w.pool.Generation++
	w.note("user: %s", what)
}

// disturb does something to a Pod that nobody asked for.
func (w *world) disturb(p *pod) {
	switch w.rng.IntN(6) {
	case 0:
		w.note("node of %s dies", p.Name)
		w.kill(p)
	case 1:
		w.note("%s starts anew", p.Name)
		w.lose(p)
		p.drains = p.Terminating
	case 2:
		w.note("%s is not ready", p.Name)
		p.ReadySince, p.readyAt = time.Time{}, w.now.Add(10*time.Second)
		p.version++
	case 3:
		w.note("%s is deleted", p.Name)
		p.Terminating, p.drains = true, true
		p.version++
	case 4:
		p.liar = !p.liar
		w.note("%s lies: %t", p.Name, p.liar)
	case 5:
		p.deaf = !p.deaf
		w.note("%s is deaf: %t", p.Name, p.deaf)
	}
}

// lose ends a worker's process with all it has.
func (w *world) lose(p *pod) {
	for range p.jobs {
		w.lost = append(w.lost, w.now.Add(simLease))
	}
	p.jobs = nil
}

func (w *world) kill(p *pod) {
	w.lose(p)
	for i := range w.pods {
		if w.pods[i] == p {
			w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
			return
		}
	}
}

// work lets workers and broker go on.
func (w *world) work() {
	var lost []time.Time
	for _, end := range w.lost {
		if end.After(w.now) {
			lost = append(lost, end)
			continue
		}
		w.backlog++
	}
	w.lost = lost
	for _, p := range append([]*pod(nil), w.pods...) {
		w.workOne(p)
	}
}

func (w *world) workOne(p *pod) {
	if p.Pending && (w.calm || w.chance(60)) {
		p.Assigned, p.Pending, p.Running = true, false, true
		p.readyAt = w.now.Add(time.Duration(w.rng.IntN(5)) * time.Second)
		p.version++
	}
	if p.Running && p.ReadySince.IsZero() && !p.readyAt.After(w.now) {
		p.ReadySince = w.now.Truncate(time.Second)
		p.version++
	}
	var jobs []time.Time
	for _, end := range p.jobs {
		switch {
		case end.After(w.now) || w.down:
			jobs = append(jobs, end)
		case w.chance(10):
			p.failed++
		default:
			p.succeeded++
		}
	}
	p.jobs = jobs
	for len(p.jobs) < 2 && p.Running && !p.drains && !w.down && w.backlog > 0 {
		w.backlog--
		longest := 60
		if p.liar { // what a liar has is given to others after a lease
			longest = int(simLease.Seconds()) - 5
		}
		p.jobs = append(p.jobs, w.now.Add(time.Duration(1+w.rng.IntN(longest))*time.Second))
	}
	if p.Terminating && len(p.jobs) == 0 {
		w.kill(p)
	}
}

// workload plays the controllers of Deployments and StatefulSets.
func (w *world) workload() {
	for _, d := range w.deployments {
		live := w.live(d.Hash)
		for int32(len(live)) > d.Replicas {
			victim := w.next(d, live)
			w.note("%s is removed, with %d in flight", victim.Name, len(victim.jobs))
			victim.Terminating, victim.drains = true, true
			victim.version++
			w.removed++
			live = w.live(d.Hash)
		}
		for int32(len(live)) < d.Replicas {
			w.create(d)
			live = w.live(d.Hash)
		}
	}
}

func (w *world) live(hash string) []*pod {
	var live []*pod
	for _, p := range w.pods {
		if p.Revision == hash && !p.Terminating {
			live = append(live, p)
		}
	}
	return live
}

// next is the Pod that is removed next, of equals any.
func (w *world) next(d *deployment, live []*pod) *pod {
	best := live[w.rng.IntN(len(live))]
	for _, p := range live {
		switch {
		case d.Ordered && p.Ordinal > best.Ordinal:
			best = p
		case !d.Ordered && removal(&worker{Worker: &p.Worker}, &worker{Worker: &best.Worker}) < 0:
			best = p
		}
	}
	return best
}

func (w *world) create(d *deployment) {
	p := &pod{Worker: Worker{Revision: d.Hash, Created: w.now.Truncate(time.Second), Pending: true}}
	w.made++
	p.Name = fmt.Sprintf("pod-%d", w.made)
	if d.Ordered {
		taken := map[int32]bool{}
		for _, other := range w.pods {
			if other.Revision == d.Hash {
				taken[other.Ordinal] = true
			}
		}
		for taken[p.Ordinal] {
			p.Ordinal++
		}
	}
	w.pods = append(w.pods, p)
	w.note("%s is made for %s", p.Name, d.Name)
}

// remember is what the caches show from now on.
func (w *world) remember() {
	w.seen = snapshot{}
	for _, d := range w.deployments {
		w.seen.revisions = append(w.seen.revisions, d.Revision)
	}
	for _, p := range w.pods {
		w.seen.workers = append(w.seen.workers, p.Worker)
	}
}
