package workerpool

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// autoscaledPool returns a pool with 0 to 5 workers.
func autoscaledPool(workers int) *testPool {
	s := newTestPool(int32(workers))
	s.Pool.Spec.Replicas = nil
	s.Pool.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 5}
	return s.withCurrentRevision(workers)
}

func TestRequeueInterval(t *testing.T) {
	for title, test := range map[string]struct {
		pool *testPool
		want time.Duration
	}{
		"a pool with workers every 2 s":                           {autoscaledPool(1), scaling.DecisionInterval},
		"a pool at zero waits for the notification of its broker": {autoscaledPool(0), 0},
		"a pool at zero with a delayed message":                   {withDelayedMessage(autoscaledPool(0)), idleInterval},
		"a pool at zero with a message that waits for a retry":    {withRetry(autoscaledPool(0)), idleInterval},
		"a pool at zero with a source":                            {withSource(autoscaledPool(0)), sourceInterval},
		"a pool without stats":                                    {withoutStats(autoscaledPool(0)), idleInterval},
		"a pool whose Queue does not exist":                       {withMissingQueue(autoscaledPool(0)), queueInterval},
		"a pool of fixed size that is complete":                   {newTestPool(1).withCurrentRevision(1), protectionInterval},
		"a pool of fixed size that is incomplete":                 {newTestPool(2).withCurrentRevision(1), scaling.DecisionInterval},
		"a deleted pool with workers":                             {withDeletionTimestamp(newTestPool(1).withCurrentRevision(1)), scaling.DecisionInterval},
		"a deleted pool without workers":                          {withDeletionTimestamp(newTestPool(0)), 0},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, test.want, Decide(test.pool.Observation).RequeueAfter) })
	}
}

func withDelayedMessage(s *testPool) *testPool { s.Stats.Delayed = 1; return s }

func withRetry(s *testPool) *testPool {
	s.Stats = retryStats(broker.QueueStats{InFlight: 1, TotalArrivals: 1})
	return s
}

func withSource(s *testPool) *testPool { s.Pool.Spec.Source = &v1alpha1.Source{}; return s }

func withoutStats(s *testPool) *testPool {
	s.Stats, s.StatsError = nil, "the broker does not answer"
	return s
}

func withMissingQueue(s *testPool) *testPool {
	s.Problem = &decision.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: "Queue not found"}
	return s
}

func withDeletionTimestamp(s *testPool) *testPool {
	s.Pool.DeletionTimestamp = new(metav1.NewTime(testTime))
	return s
}

func TestProblemPreventsAllChanges(t *testing.T) {
	s := withMissingQueue(newTestPool(3).withCurrentRevision(3).withReplicas(0))
	decision := Decide(s.Observation)
	isUnchanged := !decision.changesCluster() && len(decision.SharedObjects) == 0 && decision.Status.Desired == 3
	require.True(t, isUnchanged, "decision changes the cluster: %+v", decision)
	c := meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionReady)
	require.True(t, c.Reason == v1alpha1.ReasonQueueNotFound, "Ready is %s, %s", c.Status, c.Reason)
}

func TestStatusOfAPoolWithAProblemChangesNothingAsTimePasses(t *testing.T) {
	for title, s := range map[string]*testPool{"without a revision": newTestPool(3), "with a revision": newTestPool(3).withCurrentRevision(3)} {
		t.Run(title, func(t *testing.T) {
			s.Problem = &decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: "Queue not ready"}
			s.Pool.Status = Decide(s.Observation).Status
			s.Now = s.Now.Add(time.Hour)
			require.Equal(t, s.Pool.Status, Decide(s.Observation).Status)
		})
	}
}

func TestBudgetAppliesToBusyPools(t *testing.T) {
	s := autoscaledPool(5)
	s.Pool.Status.Replicas = 5
	limit := v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Limits: &v1alpha1.PolicyLimits{MaxReplicasTotal: new(int32(8))}}}
	other := v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}}
	other.Spec.Priority, other.Spec.Replicas = 10, new(int32(5))
	other.Status.Desired, other.Status.Replicas = 5, 5
	s.Policies, s.NamespacePools = testbuilder.SelectPolicies(limit), []v1alpha1.WorkerPool{*s.Pool, other}
	for _, w := range s.Workers {
		s.withInFlight(w.Name, 10)
	}
	decision := Decide(s.Observation)
	drained := workersWhere(&decision, func(d DrainState) bool { return !d.DrainingSince.IsZero() })
	require.True(t, decision.Status.Desired == 3 && len(drained) == 2, "desired %d, drained %v", decision.Status.Desired, drained)
	require.True(t, len(decision.Events) != 0 && decision.Events[0].Reason == v1alpha1.EventPreempted, "events %+v, want Preempted", decision.Events)
}

func TestDeletedPoolDrainsItsWorkers(t *testing.T) {
	withRemovable := func() *testPool {
		return newTestPool(1).withCurrentRevision(1).changeWorker("worker:1-0", markedRemovable)
	}
	abandoned := withoutStats(withRemovable())
	abandoned.Pool.Annotations = map[string]string{AnnotationAbandon: "true"}
	for title, test := range map[string]struct {
		pool      *testPool
		drains    []string
		finalizer bool
		replicas  int32
	}{
		"all workers are drained":                  {newTestPool(2).withCurrentRevision(2), []string{"worker:1-0", "worker:1-1"}, true, 2},
		"removable workers are removed":            {withRemovable(), nil, true, 0},
		"without stats no worker is removed":       {withoutStats(withRemovable()), nil, true, 1},
		"the annotation abandons draining":         {abandoned, nil, true, 0},
		"a problem does not prevent draining":      {withMissingQueue(newTestPool(1).withCurrentRevision(1)), []string{"worker:1-0"}, true, 1},
		"the finalizer is removed without workers": {newTestPool(0).withCurrentRevision(0), nil, false, 0},
	} {
		t.Run(title, func(t *testing.T) {
			s := withDeletionTimestamp(test.pool)
			decision := Decide(s.Observation)
			drains := workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) })
			require.Equal(t, test.drains, drains)
			require.Equal(t, test.finalizer, decision.KeepFinalizer)
			require.Equal(t, test.replicas, s.plannedReplicas(&decision)[s.Revisions[0].Name])
		})
	}
}

func TestOnlyAPoolWithWorkersHasTheFinalizer(t *testing.T) {
	for title, test := range map[string]struct {
		pool *testPool
		want bool
	}{
		"workers run":                         {newTestPool(1).withCurrentRevision(1), true},
		"workers start":                       {newTestPool(1).withCurrentRevision(0), true},
		"a new pool":                          {newTestPool(1), true},
		"workers stop":                        {newTestPool(0).withCurrentRevision(1), true},
		"workers run, and its Queue is gone":  {withMissingQueue(newTestPool(1).withCurrentRevision(1)), true},
		"no workers":                          {newTestPool(0).withCurrentRevision(0), false},
		"a new pool without workers":          {newTestPool(0), false},
		"no workers, and its Queue is gone":   {withMissingQueue(newTestPool(1).withCurrentRevision(0)), false},
		"no workers, and its metrics unknown": {withoutStats(autoscaledPool(0)), false},
	} {
		t.Run(title, func(t *testing.T) {
			got := Decide(test.pool.Observation)
			require.True(t, got.KeepFinalizer == test.want && !got.Leave, "finalizer %t, leaves %t", got.KeepFinalizer, got.Leave)
		})
	}
}

func TestMetricsLostNeedsMetricsBefore(t *testing.T) {
	lost := func(s *testPool) bool {
		return slices.ContainsFunc(Decide(s.Observation).Events, func(e decision.Event) bool { return e.Reason == v1alpha1.EventMetricsLost })
	}
	s := withoutStats(autoscaledPool(1))
	require.True(t, !lost(s), "MetricsLost for metrics that were never read")
	s = autoscaledPool(1)
	s.Pool.Status = Decide(s.Observation).Status
	require.True(t, lost(withoutStats(s)), "no event MetricsLost")
	status := Decide(s.Observation).Status
	require.True(t, status.Desired == 1 && status.Backlog == nil, "without metrics: %d workers, backlog %v", status.Desired, status.Backlog)
}

func TestStatusThatDiffersInStatsOnlyIsDeferrable(t *testing.T) {
	s := autoscaledPool(1)
	s.Stats.Arrived, s.Stats.Finished = new(int64(0)), new(int64(0))
	s.withInFlight("worker:1-0", 1)
	first := Decide(s.Observation)
	s.Pool.Status, s.Memory, s.Now = first.Status, first.Memory, testTime.Add(2*time.Second)
	s.withInFlight("worker:1-0", 2)
	require.True(t, Decide(s.Observation).StatusDeferrable, "a change of stats is not deferrable")
	s.Workers[0].ReadySince = time.Time{}
	require.True(t, !Decide(s.Observation).StatusDeferrable, "a worker that is not ready any more is deferrable")
}

func TestNoStageChangesWhatAnEarlierOneDecided(t *testing.T) {
	deleted := rollingPool(4, 2)
	deleted.Pool.DeletionTimestamp = &metav1.Time{Time: testTime}
	failing := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(10, 10)).changeWorker("worker:1-0", countOutcomes(50, 0))
	failing.Rollout = RolloutMemory{Revision: failing.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour)}
	canary := rollingPool(4, 1)
	canary.Pool.Spec.Rollout = &v1alpha1.Rollout{Strategy: v1alpha1.RolloutCanary, Steps: []v1alpha1.RolloutStep{{Percent: 25}}}
	for name, pool := range map[string]*testPool{
		"new": newTestPool(2), "rolling out": rollingPool(4, 2), "rolled back": failing, "canary": canary, "deleted": deleted,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(pool.Observation)
			d := decideDemand(f)
			r := decideRollout(f, d.desired)
			p := planWorkers(f, &r)
			newReport(f, &d, &r, &p)

			stages := cmp.Options{
				cmp.Exporter(func(reflect.Type) bool { return true }),
				cmp.Transformer("byName", func(serving map[*revisionState]int32) map[string]int32 {
					byName := map[string]int32{}
					for revision, count := range serving {
						byName[revision.Name] = count
					}
					return byName
				}),
			}
			freshFleet := newFleet(pool.Observation)
			freshDemand := decideDemand(freshFleet)
			freshRollout := decideRollout(freshFleet, freshDemand.desired)
			freshPlan := planWorkers(freshFleet, &freshRollout)
			for stage, pair := range map[string][2]any{
				"fleet": {newFleet(pool.Observation), f}, "demand": {freshDemand, d}, "rollout": {freshRollout, r}, "plan": {freshPlan, p},
			} {
				diff := cmp.Diff(pair[0], pair[1], stages)
				require.True(t, diff == "", "a later stage changes %s (-before, +after):\n%s", stage, diff)
			}
		})
	}
}

func TestAPoolWithASourceAssumesNoServiceTime(t *testing.T) {
	for title, test := range map[string]struct {
		change func(*testPool)
		want   int32
		source scaling.TargetSource
	}{
		"the default is the concurrency":              {func(*testPool) {}, 10, scaling.TargetDefault},
		"the default is at least 5":                   {func(s *testPool) { s.Pool.Spec.Concurrency = 1 }, 20, scaling.TargetDefault},
		"backlogPerReplica":                           {func(s *testPool) { s.Pool.Spec.Autoscaling.BacklogPerReplica = new(int32(50)) }, 2, scaling.TargetBacklogPerReplica},
		"the target of the source":                    {func(s *testPool) { s.Stats.BacklogPerReplica = 25 }, 4, scaling.TargetFromSource},
		"the service time that a worker reports":      {func(s *testPool) { s.Workers[0].Stats.Recent = &RecentAttempts{Count: 10, Seconds: 1} }, 1, scaling.TargetServiceTime},
		"a pool with Queues assumes a service time":   {func(s *testPool) { s.Pool.Spec.Source = nil }, 3, scaling.TargetAssumedServiceTime},
		"workers that do not answer change no target": {func(s *testPool) { s.Workers[0].Stats = nil }, 10, scaling.TargetDefault},
	} {
		t.Run(title, func(t *testing.T) {
			s := withSource(autoscaledPool(1))
			s.Pool.Spec.Autoscaling.MaxReplicas = 100
			s.Stats.InFlightKnown, s.Stats.Backlog = false, 100
			test.change(s)
			d := decideDemand(newFleet(s.Observation)).decision
			isRight := d.Recommended == test.want && d.Target.Source == test.source
			require.True(t, isRight, "%d recommended by %s: %s", d.Recommended, d.Target.Source, d.Formula)
		})
	}
}

func TestBudgetIsAllocatedByPriority(t *testing.T) {
	high := func(c budgetClaim) budgetClaim { c.Name, c.Priority, c.Preempts = "high", 10, true; return c }
	low := func(c budgetClaim) budgetClaim { c.Name = "low"; return c }
	for title, test := range map[string]struct {
		claims []budgetClaim
		total  int32
		want   map[string]int32
	}{
		"free workers go to the pool that needs them": {
			[]budgetClaim{low(budgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 10, map[string]int32{"low": 5},
		},
		"a pool gets at most the total": {[]budgetClaim{low(budgetClaim{Replicas: 2, Desired: 2, Recommended: 5})}, 4, map[string]int32{"low": 4}},
		"the pool with the higher priority is first": {
			[]budgetClaim{low(budgetClaim{Recommended: 5}), high(budgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 5, "low": 1},
		},
		"preemption takes workers above the minimum of a lower priority": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6, MinReplicas: 2}), high(budgetClaim{Recommended: 5})}, 6, map[string]int32{"high": 0, "low": 2},
		},
		"preemption takes only the missing workers": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), high(budgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"draining workers are not preempted again": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 4, Recommended: 6}), high(budgetClaim{Recommended: 2})}, 6, map[string]int32{"high": 0, "low": 4},
		},
		"a pool without preemption waits": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "patient", Priority: 10, Recommended: 5}}, 6, map[string]int32{"patient": 0, "low": 6},
		},
		"equal priorities do not preempt each other": {
			[]budgetClaim{low(budgetClaim{Replicas: 6, Desired: 6, Recommended: 6}), {Name: "peer", Preempts: true, Recommended: 5}}, 6, map[string]int32{"peer": 0, "low": 6},
		},
		"a smaller total is taken from the lowest priority down to its minimum first": {
			[]budgetClaim{low(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 3}), high(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 1})},
			5,
			map[string]int32{"high": 2, "low": 3},
		},
		"a smaller total is taken below the minimum if necessary": {
			[]budgetClaim{low(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4}), high(budgetClaim{Replicas: 4, Desired: 4, Recommended: 4, MinReplicas: 4})},
			5,
			map[string]int32{"high": 4, "low": 1},
		},
	} {
		t.Run(title, func(t *testing.T) {
			for name, want := range test.want {
				got := allocateBudget(test.claims, name, test.total)
				require.True(t, got == want, "%s gets %d, want %d", name, got, want)
			}
		})
	}
}

var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// testPool is an observation that tests change.
type testPool struct{ Observation }

// newTestPool returns a pool with spec.replicas, without workers and without messages.
func newTestPool(replicas int32) *testPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "ns", UID: "pool", Generation: 1}}
	wp.Spec.Image, wp.Spec.Concurrency, wp.Spec.Workload, wp.Spec.Replicas = "worker:1", 10, v1alpha1.WorkloadDeployment, &replicas
	wp.Status.ObservedGeneration, wp.Status.Desired = 1, replicas
	s := &testPool{Observation{Pool: wp, Now: testTime, Config: WorkerConfig{File: "x"}}}
	s.Stats = &QueueStats{InFlightKnown: true, Lease: 30 * time.Second}
	return s
}

// revisionHash returns the hash of the revision that the spec asks for.
func (s *testPool) revisionHash() string { return newFleet(s.Observation).updated.Hash }

func (s *testPool) revisionName() string { return childObjectName("mail", s.revisionHash()) }

// withRevision adds the revision that the spec asks for, with ready and idle workers.
func (s *testPool) withRevision(workers int) *testPool {
	hash := s.revisionHash()
	s.Revisions = append(s.Revisions, Revision{
		Name: s.revisionName(), Hash: hash, Created: testTime.Add(-time.Hour), Replicas: int32(workers),
		Ordered: s.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
	})
	for i := range workers {
		s.Workers = append(s.Workers, Worker{
			Name: fmt.Sprintf("%s-%d", s.Pool.Spec.Image, i), Revision: hash,
			Created: testTime.Add(-time.Hour + time.Duration(i)*time.Minute), ReadySince: testTime.Add(-30 * time.Minute),
			Assigned: true, Running: true,
			Stats: &WorkerStats{Succeeded: new(int64(1)), Failed: new(int64(0))},
		})
		if s.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet {
			s.Workers[len(s.Workers)-1].Ordinal = int32(i)
		}
	}
	return s
}

// withCurrentRevision adds a revision that serves.
func (s *testPool) withCurrentRevision(workers int) *testPool {
	s.withRevision(workers)
	r := &s.Revisions[len(s.Revisions)-1]
	r.History.ProvenWorkers = 1
	s.Pool.Status.CurrentRevision = r.Name
	return s
}

func (s *testPool) withImage(image string) *testPool { s.Pool.Spec.Image = image; return s }

func (s *testPool) withReplicas(replicas int32) *testPool {
	s.Pool.Spec.Replicas = &replicas
	return s
}

func (s *testPool) changeWorker(name string, change func(w *Worker)) *testPool {
	for i := range s.Workers {
		if s.Workers[i].Name == name {
			change(&s.Workers[i])
		}
	}
	return s
}

// withInFlight adds messages in flight to a worker and to the stats of the broker.
func (s *testPool) withInFlight(name string, inFlight int64) *testPool {
	s.Stats.InFlight += inFlight
	return s.changeWorker(name, func(w *Worker) { w.Stats.InFlight = inFlight })
}

// drainedSince returns a change to a worker that reports to be drained.
func drainedSince(ago time.Duration) func(w *Worker) {
	return func(w *Worker) {
		w.DrainingSince, w.IdleSince = testTime.Add(-ago), testTime.Add(-ago)
		w.Stats = &WorkerStats{Draining: true, Drained: true}
	}
}

func markedRemovable(w *Worker) {
	drainedSince(time.Minute)(w)
	w.RemovableSince = testTime.Add(-10 * time.Second)
}

// plannedReplicas returns the replicas of each revision after the decision.
func (s *testPool) plannedReplicas(decision *Decision) map[string]int32 {
	sizes := map[string]int32{}
	for _, r := range s.Revisions {
		sizes[r.Name] = r.Replicas
	}
	for _, size := range decision.Resizes {
		sizes[size.Name] = size.Replicas
	}
	return sizes
}

func workersWhere(decision *Decision, matches func(DrainState) bool) []string {
	var names []string
	for _, m := range decision.DrainStates {
		if matches(m) {
			names = append(names, m.Worker)
		}
	}
	return names
}
