package workerpool

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// rollingPool returns a pool of four workers with a surge of one whose image has changed.
func rollingPool(old, updated int) *testPool {
	s := newTestPool(4).withCurrentRevision(old).withImage("worker:2")
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{}
	return s.withRevision(updated)
}

func TestRollingAndRecreate(t *testing.T) {
	type want struct {
		old, updated, drains int32
	}
	for title, test := range map[string]struct {
		pool *testPool
		want want
	}{
		"the rollout starts with the surge":                      {rollingPool(4, 0), want{4, 1, 0}},
		"a proven worker replaces an old one":                    {rollingPool(4, 1), want{4, 1, 1}},
		"a worker without success replaces none":                 {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second)), want{4, 1, 0}},
		"a worker that is idle for 30 s is proven":               {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(30*time.Second)).withEmptyQueues(30 * time.Second), want{4, 1, 1}},
		"one that is idle while messages wait is not":            {withBacklog(rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Hour)).withEmptyQueues(time.Hour)), want{4, 1, 0}},
		"one that is idle since messages waited is not":          {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Hour)).withEmptyQueues(29 * time.Second), want{4, 1, 0}},
		"one that reports nothing is not":                        {rollingPool(4, 1).changeWorker("worker:2-0", reportNothing).withEmptyQueues(time.Hour), want{4, 1, 0}},
		"in drain mode Signal, 30 s without a report suffice":    {signalPool(4, 1).changeWorker("worker:2-0", reportNothing), want{4, 1, 1}},
		"one that counts nothing is, with a message in flight":   {rollingPool(4, 1).changeWorker("worker:2-0", countNothing).withInFlight("worker:2-0", 1), want{4, 1, 1}},
		"the next worker is created after an old one stopped":    {rollingPool(3, 1), want{3, 2, 0}},
		"the last old worker stops when all are replaced":        {rollingPool(1, 4), want{1, 4, 1}},
		"the old revision scales up until the new one is proven": {rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second)).withReplicas(6), want{6, 2, 0}},
		"the new revision scales up once it is proven":           {rollingPool(4, 1).withReplicas(6), want{4, 4, 0}},
		"surplus old workers are drained first":                  {rollingPool(4, 1).withReplicas(3), want{4, 1, 2}},
		"without a surge an old worker is drained first":         {withMaxUnavailable(rollingPool(4, 0)), want{4, 0, 1}},
		"without a surge a new worker follows":                   {withMaxUnavailable(rollingPool(3, 0)), want{3, 1, 0}},
		"Recreate drains all old workers":                        {withRecreate(rollingPool(4, 0)), want{4, 0, 4}},
		"Recreate then starts new workers":                       {withRecreate(rollingPool(0, 0)), want{0, 4, 0}},
		"a pool at zero replaces nothing":                        {rollingPool(0, 0).withReplicas(0), want{0, 0, 0}},
		"both revisions serve after scaling from zero":           {rollingPool(0, 0), want{4, 1, 0}},
	} {
		t.Run(title, func(t *testing.T) {
			decision := Decide(test.pool.Observation)
			sizes := test.pool.plannedReplicas(&decision)
			got := want{
				sizes[test.pool.Revisions[0].Name], sizes[test.pool.Revisions[1].Name],
				int32(len(workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) }))),
			}
			require.Equal(t, test.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

// readyWithoutSuccess returns a change to a ready worker that has handled no message.
func readyWithoutSuccess(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.ReadySince = testTime.Add(-ago)
		w.Stats.Succeeded = new(int64(0))
	}
}

// withEmptyQueues sets since when nothing has waited in the queues.
func (s *testPool) withEmptyQueues(ago time.Duration) *testPool {
	s.Rollout.Revision, s.Rollout.QueueEmptySince = s.Revisions[len(s.Revisions)-1].Name, testTime.Add(-ago)
	return s
}

func withBacklog(s *testPool) *testPool { s.Stats.Backlog = 1; return s }

// signalPool is a rollingPool with drain mode Signal.
func signalPool(old, updated int) *testPool {
	s := newTestPool(4)
	s.Pool.Spec.Drain, s.Pool.Spec.Rollout = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal}, &v1alpha1.Rollout{}
	return s.withCurrentRevision(old).withImage("worker:2").withRevision(updated)
}

func reportNothing(w *Worker) { w.Stats = nil }
func countNothing(w *Worker)  { w.Stats = &WorkerStats{} }

func failImagePull(w *Worker) {
	w.Running, w.ReadySince, w.Stats = false, time.Time{}, nil
	waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	w.StartFailure = StartFailure(&corev1.ContainerStatus{State: corev1.ContainerState{Waiting: waiting}})
}

func withMaxUnavailable(s *testPool) *testPool {
	s.Pool.Spec.Rollout.MaxSurge, s.Pool.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	return s
}

func withRecreate(s *testPool) *testPool {
	s.Pool.Spec.Rollout.Strategy = v1alpha1.RolloutRecreate
	return s
}

func TestANewerSpecAndARollbackReplaceARolloutWithoutProof(t *testing.T) {
	rolledBack := rollingPool(4, 1).withImage("worker:1").changeWorker("worker:1-3", readyWithoutSuccess(time.Second))
	require.Equal(t, rolledBack.Revisions[0].Name, Decide(rolledBack.Observation).Status.CurrentRevision)
	for title, s := range map[string]*testPool{"a newer spec": rollingPool(4, 1).withImage("worker:3"), "a rollback": rolledBack} {
		decision := Decide(s.Observation)
		drained := workersWhere(&decision, func(d DrainState) bool { return !d.DrainingSince.IsZero() })
		require.True(t, slices.Equal(drained, []string{"worker:2-0"}), "%s: %v drain, not the revision in between", title, drained)
	}
}

func TestOldRevisionsAreKeptForRollbacks(t *testing.T) {
	s := newTestPool(1)
	for _, image := range []string{"worker:a", "worker:b", "worker:c", "worker:d"} {
		s.withImage(image).withRevision(0)
		s.Revisions[len(s.Revisions)-1].Created = testTime.Add(time.Duration(len(s.Revisions)-100) * time.Hour)
	}
	s.withImage("worker:1").withCurrentRevision(1)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{RevisionHistory: new(int32(2))}
	decision := Decide(s.Observation)
	require.Equal(t, []string{s.Revisions[1].Name, s.Revisions[0].Name}, decision.DeleteRevisions)
}

// canaryPool returns a pool of ten workers with two canary steps: two workers for a minute, then five until the analysis has enough samples.
func canaryPool(old, updated int, past History) *testPool {
	s := newTestPool(10).withCurrentRevision(old).withImage("worker:2")
	minute := durationSeconds(60)
	s.Pool.Spec.Rollout = &v1alpha1.Rollout{
		Strategy: v1alpha1.RolloutCanary, Steps: []v1alpha1.RolloutStep{{Percent: 20, Pause: minute}, {Percent: 50}},
		Analysis: &v1alpha1.RolloutAnalysis{MinSamples: 10},
	}
	s.withRevision(updated)
	s.Revisions[1].History = past
	s.Rollout = RolloutMemory{Revision: s.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour)} // before all workers
	return s.changeWorker("worker:1-0", countOutcomes(100, 0))
}

// countOutcomes returns a change to a worker that has handled this many messages.
func countOutcomes(succeeded, failed int64) func(w *Worker) {
	return func(w *Worker) { w.Stats.Succeeded, w.Stats.Failed = &succeeded, &failed }
}

func TestCanarySteps(t *testing.T) {
	type want struct {
		old, updated int32
		history      History
	}
	reached := testTime.Add(-time.Minute)
	first := History{ProvenWorkers: 2, LastProgress: reached}
	firstReached, failed := first, first
	firstReached.StepReached, failed.FailureMessage = reached, "AnalysisFailed: 20.0 % of its 20 messages failed, compared to 0.0 % of 107 before"
	second := History{CanaryStep: 1, ProvenWorkers: 5, LastProgress: reached, StepReached: reached}
	for title, test := range map[string]struct {
		pool *testPool
		want want
	}{
		"the first step creates its workers": {canaryPool(10, 0, History{}), want{10, 2, History{}}},
		"the step is reached when its workers are proven": {
			canaryPool(8, 2, History{}), want{8, 2, History{StepReached: testTime, LastProgress: testTime, ProvenWorkers: 2}},
		},
		"the next step starts after the pause":     {canaryPool(8, 2, firstReached), want{8, 5, History{CanaryStep: 1, ProvenWorkers: 2, LastProgress: reached}}},
		"a step without a pause waits for samples": {canaryPool(5, 5, second), want{5, 5, second}},
		"all workers are replaced after the last step": {
			canaryPool(5, 5, second).changeWorker("worker:2-0", countOutcomes(20, 0)), want{5, 8, History{CanaryStep: 2, ProvenWorkers: 5, LastProgress: reached}},
		},
		"too many failures roll back": {canaryPool(8, 2, first).changeWorker("worker:2-0", countOutcomes(15, 4)), want{10, 2, failed}},
	} {
		t.Run(title, func(t *testing.T) {
			decision := Decide(test.pool.Observation)
			sizes := test.pool.plannedReplicas(&decision)
			got := want{sizes[test.pool.Revisions[0].Name], sizes[test.pool.Revisions[1].Name], test.pool.Revisions[1].History}
			for _, size := range decision.Resizes {
				if size.Name == test.pool.Revisions[1].Name {
					got.history = size.History
				}
			}
			require.Equal(t, test.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

// The status is stored before the revision is written, which may fail. The failing worker may have stopped in the meantime.
func TestFailureOfACanaryPersistsBeforeItsRevisionIsWritten(t *testing.T) {
	s := canaryPool(8, 2, History{ProvenWorkers: 2}).changeWorker("worker:2-0", countOutcomes(15, 4))
	first := Decide(s.Observation)
	require.True(t, hasEvent(&first, v1alpha1.EventRolledBack), "no rollback: %+v", first.Events)
	s.Pool.Status = first.Status
	s.changeWorker("worker:2-0", countOutcomes(0, 0)).Rollout = RolloutMemory{}
	second := Decide(s.Observation)
	require.True(t, !hasEvent(&second, v1alpha1.EventRolledBack), "the event is repeated")
	isFailed := func(size RevisionSize) bool {
		return size.Name == s.Revisions[1].Name && size.History.FailureMessage != ""
	}
	require.True(t, slices.ContainsFunc(second.Resizes, isFailed), "the canary is retried: %+v", second.Resizes)
}

func hasEvent(d *Decision, reason string) bool {
	return slices.ContainsFunc(d.Events, func(e decision.Event) bool { return e.Reason == reason })
}

func TestAConditionQuotesWhyAContainerDoesNotStart(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerStateWaiting {
		return corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
	crashes := waiting("CrashLoopBackOff", "back-off 40s restarting failed container")
	asRoot, noSecret := "container has runAsNonRoot and image will run as root", `secret "x" not found`
	for title, test := range map[string]struct {
		waiting corev1.ContainerStateWaiting
		last    *corev1.ContainerStateTerminated
		reason  string // of the condition; empty if the container starts by itself
		message string
	}{
		"it is created":                    {waiting("ContainerCreating", ""), nil, "", ""},
		"it waits for another":             {waiting("PodInitializing", ""), nil, "", ""},
		"its image runs as root":           {waiting("CreateContainerConfigError", asRoot), nil, v1alpha1.ReasonConfigError, "CreateContainerConfigError: " + asRoot},
		"a Secret is missing":              {waiting("CreateContainerConfigError", noSecret), nil, v1alpha1.ReasonConfigError, "CreateContainerConfigError: " + noSecret},
		"its image does not exist":         {waiting("ErrImagePull", "not found"), nil, v1alpha1.ReasonImagePull, "ErrImagePull: not found"},
		"it crashes, and nobody knows how": {crashes, nil, v1alpha1.ReasonCrashLoop, "CrashLoopBackOff"},
		"it crashes": {
			crashes, &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no such table\n"},
			v1alpha1.ReasonCrashLoop, "CrashLoopBackOff: exit code 3: no such table",
		},
		"the kubelet says too much": {waiting("RunContainerError", strings.Repeat("é", 600)), nil, v1alpha1.ReasonConfigError, "RunContainerError: ééé"},
	} {
		t.Run(title, func(t *testing.T) {
			status := &corev1.ContainerStatus{Name: "worker", State: corev1.ContainerState{Waiting: &test.waiting}, LastTerminationState: corev1.ContainerState{Terminated: test.last}}
			s := rollingPool(4, 1).changeWorker("worker:2-0", func(w *Worker) {
				w.Running, w.ReadySince, w.Stats = false, time.Time{}, nil
				w.StartFailure = StartFailure(status)
			})
			degraded := meta.FindStatusCondition(Decide(s.Observation).Status.Conditions, v1alpha1.ConditionDegraded)
			if test.reason == "" {
				require.True(t, degraded.Status == metav1.ConditionFalse, "%+v", degraded)
				return
			}
			require.Equal(t, test.reason, degraded.Reason)
			require.Contains(t, degraded.Message, " does not start: container worker: "+test.message)
			require.True(t, len(degraded.Message) <= 1024, "the message has %d bytes", len(degraded.Message))
		})
	}
}

func TestARevisionIsWorseOnlyIfChanceDoesNotExplainIt(t *testing.T) {
	rules := analysisRules{minSamples: 20, maxIncrease: 0.05}
	for title, test := range map[string]struct {
		updated, others  Outcomes
		isWorse, isAlike bool
	}{
		"all fail, none before":                 {Outcomes{0, 20}, Outcomes{20, 0}, true, false},
		"half fail, none before":                {Outcomes{10, 10}, Outcomes{20, 0}, true, false},
		"all fail, as before":                   {Outcomes{0, 20}, Outcomes{0, 20}, false, true},
		"half fail, as before":                  {Outcomes{10, 10}, Outcomes{500, 500}, false, true},
		"fewer fail than before":                {Outcomes{19, 1}, Outcomes{0, 20}, false, true},
		"too few messages":                      {Outcomes{0, 19}, Outcomes{1000, 0}, false, false},
		"two of 20, none of 20 before":          {Outcomes{18, 2}, Outcomes{20, 0}, false, false},
		"10 %, none of many before":             {Outcomes{180, 20}, Outcomes{1000, 0}, true, false},
		"within what the analysis allows":       {Outcomes{96_000, 4_000}, Outcomes{100_000, 0}, false, false},
		"beyond it, of millions":                {Outcomes{940_000, 60_000}, Outcomes{10_000_000, 0}, true, false},
		"all fail, and nothing to compare with": {Outcomes{0, 1000}, Outcomes{}, false, false},
	} {
		t.Run(title, func(t *testing.T) {
			c := rules.compare(test.updated, test.others)
			require.True(t, c.isWorse == test.isWorse && c.isAlike == test.isAlike, "worse: %t, alike: %t", c.isWorse, c.isAlike)
		})
	}
}

// The comparison is repeated after each message, as a rollout repeats it.
func TestAnEquallyGoodRevisionRarelyFailsTheComparison(t *testing.T) {
	rules := analysisRules{minSamples: 20, maxIncrease: 0}
	random := rand.New(rand.NewPCG(1, 2))
	const rollouts, messages = 1000, 2000
	failed := 0
	for range rollouts {
		var updated, others Outcomes
		for range messages {
			for _, side := range []*Outcomes{&updated, &others} {
				if random.IntN(10) == 0 {
					side.Failed++
				} else {
					side.Succeeded++
				}
			}
			if rules.compare(updated, others).isWorse {
				failed++
				break
			}
		}
	}
	t.Logf("%d of %d rollouts failed by chance", failed, rollouts)
	require.True(t, failed <= rollouts*8/100, "%d of %d rollouts failed by chance", failed, rollouts)
}

func TestOnlyWhatWorkersCountSinceTheStartIsCompared(t *testing.T) {
	s := rollingPool(4, 1)
	s.changeWorker("worker:1-0", countOutcomes(600, 0)).changeWorker("worker:2-0", countOutcomes(0, 0))
	s.Rollout = Decide(s.Observation).Rollout
	decide := func() (updated, others Outcomes) {
		decision := Decide(s.Observation)
		s.Rollout = decision.Rollout
		return s.Rollout.sumOutcomes()
	}
	s.changeWorker("worker:1-0", countOutcomes(603, 7)).changeWorker("worker:2-0", countOutcomes(2, 5))
	updated, others := decide()
	require.True(t, updated == (Outcomes{2, 5}) && others == (Outcomes{3, 7}), "updated %+v, others %+v", updated, others)
	s.changeWorker("worker:2-0", countOutcomes(1, 0)) // its container restarted
	s.Workers = append(s.Workers, Worker{
		Name: "new", Revision: s.Revisions[1].Hash, Created: testTime.Add(time.Minute), Stats: &WorkerStats{Succeeded: new(int64(4)), Failed: new(int64(0))},
	})
	for range 2 { // and again, after the new worker stopped
		updated, _ = decide()
		require.Equal(t, Outcomes{7, 5}, updated)
		s.Workers = s.Workers[:5]
	}
	s.withImage("worker:3")
	decide()
	require.True(t, s.Rollout.Revision != s.Revisions[1].Name, "another rollout continues the comparison")
}

func TestAVersionThatFailsMoreIsRolledBackInARollingRollout(t *testing.T) {
	failing := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(10, 10)).changeWorker("worker:1-0", countOutcomes(50, 0))
	failing.Rollout = RolloutMemory{Revision: failing.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour)}
	decision := Decide(failing.Observation)
	require.True(t, hasEvent(&decision, v1alpha1.EventRolledBack), "events: %+v", decision.Events)
}

func TestAVersionThatFailsLikeTheOldOneIsPromoted(t *testing.T) {
	s := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(0, 30)).changeWorker("worker:1-0", countOutcomes(600, 40))
	s.Rollout = RolloutMemory{Revision: s.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour), Workers: map[string]WorkerOutcomes{
		"worker:1-0": {Before: Outcomes{600, 0}, Latest: Outcomes{600, 0}},
		"worker:1-1": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}}, "worker:1-2": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}}, "worker:1-3": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}},
	}}
	decision := Decide(s.Observation)
	drained := workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) })
	require.True(t, len(drained) == 1, "drained %v, want one old worker", drained)
}
