package workerpool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
)

// A pool with one ready worker and a backlog of ten. Each row is observed every two seconds for the time.
func TestWorkIsUndoneWhenNothingFinishesForTooLong(t *testing.T) {
	nothing := func(*testPool, time.Duration) {}
	running := func(s *testPool, _ time.Duration) { s.Workers[0].Stats.InFlight, s.Stats.InFlight = 10, 10 }
	silent, empty := func(s *testPool) { s.Workers[0].Stats = nil }, func(s *testPool) { s.Stats.Backlog = 0 }
	for title, row := range map[string]struct {
		pool   func(*testPool)
		during func(*testPool, time.Duration)
		after  time.Duration
		want   bool
	}{
		"nothing runs, for less than five minutes": {nil, nothing, undoneTime - time.Second, false},
		"nothing runs, for five minutes":           {nil, nothing, undoneTime, true},
		"a success every four minutes": {
			nil, func(s *testPool, elapsed time.Duration) {
				countOutcomes(1+int64(elapsed/(4*time.Minute)), 0)(&s.Workers[0])
			}, time.Hour, false,
		},
		"all attempts fail": {nil, func(s *testPool, elapsed time.Duration) {
			s.Workers[0].Stats.InFlight, s.Stats.InFlight = 1, 1
			countOutcomes(1, int64(elapsed/time.Second))(&s.Workers[0])
		}, undoneTime, true},
		"handlers run, for less than the progress deadline": {nil, running, defaultProgressDeadline - time.Second, false},
		"handlers run, for longer":                          {nil, running, defaultProgressDeadline, true},
		"handlers run, and nothing waits":                   {empty, running, time.Hour, false},
		"messages that were given back wait": {nil, func(s *testPool, elapsed time.Duration) {
			s.Stats.Backlog, s.Stats.InFlight, s.Workers[0].Stats.Returned = 0, 10, 10
			s.Workers[0].Stats.Snoozed = new(int64(elapsed / time.Second))
		}, undoneTime, true},
		"nothing is due": {empty, nothing, time.Hour, false},
		"retries wait for an hour": {
			func(s *testPool) { s.Stats.Backlog, s.Stats.InFlight, s.Stats.RetriesInFlight = 0, 10, true }, nothing, time.Hour - time.Second, false,
		},
		"the stats are unknown":                           {func(s *testPool) { s.Stats = nil }, nothing, time.Hour, false},
		"the pool should have no workers":                 {func(s *testPool) { s.withReplicas(0) }, nothing, time.Hour, false},
		"a rate limit allows a message every ten minutes": {func(s *testPool) { s.Limits.RatePerSecond = 1.0 / 600 }, nothing, 30*time.Minute - time.Second, false},
		"workers count nothing, and the broker counts what finishes": {
			silent, func(s *testPool, elapsed time.Duration) { s.Stats.Finished = new(int64(elapsed / time.Minute)) }, time.Hour, false,
		},
		"workers count nothing, and nothing finishes": {
			silent, func(s *testPool, _ time.Duration) { s.Stats.Finished = new(int64(7)) }, undoneTime, true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1).withCurrentRevision(1)
			s.Stats.Backlog = 10
			if row.pool != nil {
				row.pool(s)
			}
			for elapsed := time.Duration(0); elapsed <= row.after; elapsed += scaling.DecisionInterval {
				s.Now = testTime.Add(elapsed)
				row.during(s, elapsed)
				d := Decide(s.Observation)
				s.Work, s.Rollout, s.Pool.Status = d.Work, d.Rollout, d.Status
			}
			conditions := s.Pool.Status.Conditions
			got := meta.FindStatusCondition(conditions, v1alpha1.ConditionDegraded)
			isUndone := got.Status == metav1.ConditionTrue && got.Reason == v1alpha1.ReasonNothingFinished
			require.True(t, isUndone == row.want && row.want != meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady), "%+v", conditions)
		})
	}
}

func TestAPoolWithUndoneWorkStaysNotReadyUntilSomethingFinishes(t *testing.T) {
	s := newTestPool(1).withCurrentRevision(1)
	s.Stats.Backlog = 10
	decide := func(after time.Duration) metav1.ConditionStatus {
		s.Now = s.Now.Add(after)
		d := Decide(s.Observation)
		s.Work, s.Pool.Status = d.Work, d.Status
		return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady).Status
	}
	decide(0)
	require.True(t, decide(undoneTime) == metav1.ConditionFalse, "the pool is Ready while nothing finishes")
	s.Work = RestoreWork(&s.Pool.Status) // the operator restarts
	for range 3 {
		require.True(t, decide(time.Second) == metav1.ConditionFalse, "the pool is Ready after a restart of the operator")
	}
	s.changeWorker("worker:1-0", countOutcomes(2, 0))
	require.True(t, decide(time.Second) == metav1.ConditionTrue, "the pool is not Ready although a message is done")
}
