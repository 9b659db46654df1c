package workerpool

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// The runtimes of workers, and the defects of their applications. TestAVersionTakesNoMessagesThatItCannotRun of package workercommand shows
// that sidecars and commands report what step assumes about them.
var (
	matrixRuntimes = []string{"sidecar", "exec", "http"}
	matrixDefects  = []string{"none", "never listens", "listens late", "refuses", "hangs", "crashes", "answers 500"}
)

const (
	matrixLateness = 40 * time.Second
	// matrixSlack is the time in which the pool observes and reports what happens.
	matrixSlack = time.Minute
	matrixRetry = 10 * time.Second
)

// matrixPool is a pool whose Pods have a runtime and a defect, and its queue. It has no disturbances.
type matrixPool struct {
	*simulator
	runtime string
	// defects of the revisions, by hash.
	defects map[string]string
	work    WorkMemory
	// snoozed is how often a Pod gave a message back.
	snoozed  map[string]int64
	returns  []matrixReturn
	finished int
	lastDone time.Time
}

// matrixReturn is a message that is due again later. Its Pod is empty if an attempt failed.
type matrixReturn struct {
	due time.Time
	pod string
}

// Of every runtime, with each defect, with a backlog or a trickle of messages, in the first revision and in a rollout of each strategy that
// has a proof: a version that finishes nothing is never promoted, the old one keeps its workers, and no pool is Ready, meets its objective
// or is not Degraded while due work is not done.
func TestReleasesOfEachRuntimeWithEachDefect(t *testing.T) {
	t.Parallel()
	cells := 0
	for _, runtime := range matrixRuntimes {
		for _, defect := range matrixDefects {
			for _, isBusy := range []bool{true, false} {
				for _, strategy := range []v1alpha1.RolloutStrategy{"", v1alpha1.RolloutRolling, v1alpha1.RolloutCanary} {
					for _, minReplicas := range []int32{0, 2} {
						cells++
						name := fmt.Sprintf("%s %s, busy %t, strategy %q, at least %d workers", runtime, defect, isBusy, strategy, minReplicas)
						t.Run(name, func(t *testing.T) { runMatrixCell(t, runtime, defect, isBusy, strategy, minReplicas) })
					}
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

func runMatrixCell(t *testing.T, runtime, defect string, isBusy bool, strategy v1alpha1.RolloutStrategy, minReplicas int32) {
	m := newMatrixPool(runtime, minReplicas)
	works, isRollout := defect == "none" || defect == "listens late", strategy != ""
	m.release("image:0", "none")
	if !isRollout {
		m.release("image:0", defect)
	}
	if isBusy {
		m.backlog = 50
	}
	limit := undoneTime
	if defect == "hangs" {
		limit = defaultProgressDeadline // jobs may take this long
	}
	if isRollout {
		m.run(2 * time.Minute)
		m.pool.Spec.Rollout.Strategy = strategy
		if strategy == v1alpha1.RolloutCanary {
			m.pool.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 50, Pause: durationSeconds(10)}}
		}
		m.release("image:1", defect)
	}
	old := m.pool.Status.CurrentRevision
	for begin := m.now; m.now.Sub(begin) < limit+5*time.Minute; {
		m.run(scaling.DecisionInterval)
		s := &m.pool.Status
		ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		degraded := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDegraded)
		isUndone := m.now.Sub(m.lastDone) > limit+matrixSlack
		switch {
		case isRollout && !works && s.CurrentRevision != old:
			t.Fatalf("promoted %s", m.describe())
		case isUndone && (ready.Status == metav1.ConditionTrue || !degraded || s.ObjectiveMet == metav1.ConditionTrue):
			t.Fatalf("the status hides that no work is done, objective met %q, %s", s.ObjectiveMet, m.describe())
		case isUndone && *s.Backlog == 0 && *s.InFlight == 0:
			t.Fatalf("the backlog is 0 while work is due, %s", m.describe())
		case isRollout && isUndone:
			t.Fatalf("the old revision does no work %s", m.describe())
		}
	}
	s := &m.pool.Status
	switch {
	case works && (m.finished == 0 || m.now.Sub(m.lastDone) > matrixSlack || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)):
		t.Errorf("a version that works does not, %s", m.describe())
	case works && isRollout && s.CurrentRevision == old:
		t.Errorf("a version that works is not promoted %s", m.describe())
	case isRollout && slices.Contains(haltsWithReason, runtime+" "+defect) && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionProgressing):
		t.Errorf("the rollout does not say why it halts %s", m.describe())
	}
}

// haltsWithReason are versions whose rollout halts with a reason at once. The others wait for the analysis, or for the progress deadline.
var haltsWithReason = []string{"sidecar never listens", "sidecar crashes", "exec never listens", "http crashes", "http refuses"}

func newMatrixPool(runtime string, minReplicas int32) *matrixPool {
	m := &matrixPool{simulator: newSimulator(1), runtime: runtime, defects: map[string]string{}, snoozed: map[string]int64{}}
	m.noDisturbances, m.retriesInFlight, m.lastDone = true, true, m.now
	spec := &m.pool.Spec
	spec.Workload, spec.Replicas, spec.Rollout = v1alpha1.WorkloadDeployment, nil, &v1alpha1.Rollout{}
	spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: minReplicas, MaxReplicas: 4, IdleAfter: durationSeconds(20), WaitP95: durationSeconds(30)}
	spec.Drain = &v1alpha1.Drain{Timeout: durationSeconds(600)}
	if runtime == "sidecar" {
		spec.Drain.Mode = v1alpha1.DrainSidecar
	}
	return m
}

// run simulates a duration with a decision every two seconds. A message arrives every six.
func (m *matrixPool) run(duration time.Duration) {
	for end := m.now.Add(duration); m.now.Before(end); {
		m.now = m.now.Add(scaling.DecisionInterval)
		if m.now.Unix()%6 == 0 {
			m.backlog++
		}
		waiting := len(m.returns)
		m.returns = slices.DeleteFunc(m.returns, func(r matrixReturn) bool { return !r.due.After(m.now) })
		m.backlog += int64(waiting - len(m.returns))
		// The broker serves the requests of workers in turn.
		pods := slices.Clone(m.pods)
		m.rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		for _, p := range pods {
			m.step(p)
		}
		m.runWorkloadControllers()
		m.refreshCache()
		m.reconcile()
	}
}

// release changes the image of the pool, which has a defect.
func (m *matrixPool) release(image, defect string) {
	m.changeSpec(image, func(spec *v1alpha1.WorkerPoolSpec) { spec.Image = image })
	m.defects[newFleet(Observation{Pool: m.pool, Config: WorkerConfig{File: "x"}, Operator: OperatorSettings{Image: "operator"}, Now: m.now}).updated.Hash] = defect
}

func (m *matrixPool) defectOf(p *simulatedPod) string {
	switch defect := m.defects[p.Revision]; {
	case defect != "listens late":
		return defect
	case m.now.Sub(p.Created) < matrixLateness:
		return "never listens"
	}
	return "none"
}

// step is what a Pod does in two seconds.
func (m *matrixPool) step(p *simulatedPod) {
	if p.Pending {
		p.Assigned, p.Pending, p.Running = true, false, true
		return
	}
	defect := m.defectOf(p)
	isDown := defect == "crashes" && m.runtime != "exec" || defect == "never listens" && m.runtime != "exec"
	if defect == "crashes" && m.runtime != "exec" && p.StartFailure == nil {
		p.StartFailure = StartFailure(&corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}})
		p.Running = m.runtime == "sidecar"
	}
	switch {
	case isDown || p.isDraining:
		p.ReadySince = time.Time{}
	case p.ReadySince.IsZero():
		p.ReadySince = m.now.Truncate(time.Second)
	}
	running := p.messageEnds
	p.messageEnds = nil
	for range running {
		switch {
		case defect == "hangs":
			p.messageEnds = append(p.messageEnds, m.now)
		case defect == "none":
			p.succeeded++
			m.finished++
			m.lastDone = m.now
		case defect == "never listens", defect == "refuses" && m.runtime == "http":
			m.snoozed[p.Name]++
			m.returns = append(m.returns, matrixReturn{m.now.Add(2 * time.Second), p.Name})
		default:
			p.failed++
			m.returns = append(m.returns, matrixReturn{m.now.Add(matrixRetry), ""})
		}
	}
	for len(p.messageEnds) < int(m.pool.Spec.Concurrency) && !isDown && !p.isDraining && !p.Terminating && m.backlog > 0 {
		m.backlog--
		p.messageEnds = append(p.messageEnds, m.now)
	}
	if p.Terminating && len(p.messageEnds) == 0 {
		m.removePod(p)
	}
}

// report is what a worker reports; nil if its process does not run or has no admin API yet.
func (m *matrixPool) report(p *simulatedPod) *WorkerStats {
	defect := m.defectOf(p)
	isDown := defect == "never listens" || defect == "crashes"
	if !p.Running || isDown && m.runtime == "http" {
		return nil
	}
	s := &WorkerStats{
		Draining: p.isDraining, Drained: p.isDraining && len(p.messageEnds) == 0, InFlight: int64(len(p.messageEnds)),
		Succeeded: new(p.succeeded), Failed: new(p.failed), Snoozed: new(m.snoozed[p.Name]),
	}
	for _, r := range m.returns {
		if r.pod == p.Name {
			s.Returned++
		}
	}
	if isDown && m.runtime == "sidecar" {
		s.Attached, s.Unavailable = new(false), "the server accepts no connection"
	}
	return s
}

// reconcile is a reconciliation that no crash interrupts, with what these workers report.
func (m *matrixPool) reconcile() {
	in := m.observeCluster()
	in.Operator.Image, in.Work = "operator", m.work
	in.Stats.InFlight += int64(len(m.returns))
	in.Stats.Waiting = m.backlog
	for i := range in.Workers {
		in.Workers[i].Stats = m.report(m.findPod(in.Workers[i].Name))
	}
	d := Decide(in)
	m.executeDecision(&in, &d)
	m.work = d.Work
}

func (m *matrixPool) describe() string {
	text := fmt.Sprintf("at %s: %d wait, %d return, %d Pods, %d finished, the last %s ago; current %s, updated %s", m.now.Format("04:05"), m.backlog, len(m.returns),
		len(m.pods), m.finished, m.now.Sub(m.lastDone), m.pool.Status.CurrentRevision, m.pool.Status.UpdatedRevision)
	for _, c := range m.pool.Status.Conditions {
		text += fmt.Sprintf("\n%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}
