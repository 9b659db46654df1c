package workerpool

import (
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
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, Decide(test.pool.Observation).RequeueAfter)
		})
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
