package workerpool

import (
	"cmp"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestConditionsSayWhatHoldsNow(t *testing.T) {
	starting := newTestPool(2).withCurrentRevision(2).changeWorker("worker:1-1", unready)
	atMinimum := autoscaledPool(2)
	atMinimum.Pool.Spec.Autoscaling.MinReplicas = 2
	atMaximum := autoscaledPool(2)
	atMaximum.Stats.Backlog, atMaximum.Pool.Spec.Autoscaling.MaxReplicas = 1000, 2
	for title, row := range map[string]struct {
		pool      *testPool
		condition string
		want      metav1.ConditionStatus
		reason    string
		message   string
	}{
		"all workers are ready": {
			newTestPool(2).withCurrentRevision(2), v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRolledOut,
			"all workers are of revision " + starting.revisionName(),
		},
		"a worker is not ready after the rollout": {
			starting, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonWorkersStarting,
			"1 of 2 workers of revision " + starting.revisionName() + " are ready",
		},
		"a pool whose metrics cannot be read is not autoscaled": {
			withoutStats(autoscaledPool(2)), v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale, "the broker does not answer",
		},
		"a pool at its minimum is not limited": {atMinimum, v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, ""},
		"a pool that needs more than its maximum is limited": {
			atMaximum, v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, "MaxReplicas", "25 recommended for an assumed service time of 1s, staying at 2: maxReplicas is 2",
		},
	} {
		t.Run(title, func(t *testing.T) {
			c := meta.FindStatusCondition(Decide(row.pool.Observation).Status.Conditions, row.condition)
			require.True(t, c.Status == row.want && c.Reason == row.reason && c.Message == row.message, "%s is %s, %s: %q", c.Type, c.Status, c.Reason, c.Message)
		})
	}
}

// Its Queue is often not ready yet: nobody knows then how many workers Policies allow.
func TestANewPoolOfFixedSizeIsNotLimited(t *testing.T) {
	decided := Decide(withMissingQueue(newTestPool(2)).Observation)
	c := meta.FindStatusCondition(decided.Status.Conditions, v1alpha1.ConditionScalingLimited)
	require.True(t, c == nil, "%+v", c)
}

func TestAnIdlePoolMeetsItsObjectiveWhateverItsLastMessagesWaited(t *testing.T) {
	for title, row := range map[string]struct {
		stats  QueueStats
		inside int64
		want   metav1.ConditionStatus
	}{
		"idle":                        {QueueStats{WaitP95: new(time.Hour)}, 0, metav1.ConditionTrue},
		"busy after a long wait":      {QueueStats{WaitP95: new(time.Hour)}, 1, metav1.ConditionFalse},
		"busy after a short wait":     {QueueStats{WaitP95: new(time.Second)}, 1, metav1.ConditionTrue},
		"busy and nothing is waiting": {QueueStats{}, 1, metav1.ConditionTrue},
	} {
		t.Run(title, func(t *testing.T) {
			s := autoscaledPool(1)
			s.Pool.Spec.Autoscaling.WaitP95 = durationSeconds(30)
			row.stats.InFlightKnown, s.Stats = true, &row.stats
			s.withInFlight("worker:1-0", row.inside)
			require.Equal(t, row.want, Decide(s.Observation).Status.ObjectiveMet)
		})
	}
}

func withRefusal(s *testPool, class decision.Class) *testPool {
	s.Refusal = &decision.Refusal{Class: class, Kind: "Deployment", Name: "mail-1", Message: "no"}
	return s
}

func withProblem(s *testPool, reason string) *testPool {
	s.Problem = &decision.Problem{Reason: reason, Message: "no"}
	return s
}

// silentCanary returns a pool in a step without a pause, whose workers report no outcomes.
func silentCanary() *testPool {
	reached := testTime.Add(-defaultProgressDeadline - time.Second)
	s := canaryPool(5, 5, History{CanaryStep: 1, ProvenWorkers: 5, LastProgress: reached, StepReached: reached})
	s.Revisions[1].Created = reached
	for i := range s.Workers {
		s.Workers[i].Stats = nil
	}
	return s
}

func unready(w *Worker) { w.ReadySince = time.Time{} }

// The rows are those of docs/conditions.md.
func TestReadyReconcilingAndStalledOfEachState(t *testing.T) {
	notProven := rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second))
	notProven.Revisions[1].Created = testTime.Add(-time.Minute)
	overQuota := newTestPool(2).withCurrentRevision(1)
	overQuota.Revisions[0].CreationFailure = `pods "mail-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`
	for title, test := range map[string]struct {
		pool                         *testPool
		wantReady                    metav1.ConditionStatus
		wantReconciling, wantStalled bool
		wantReason                   string
		wantKstatus                  status.Status
	}{
		"enough workers are ready":           {newTestPool(2).withCurrentRevision(2), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"scaled to zero":                     {autoscaledPool(0), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"scaled to zero in a rollout":        {rollingPool(0, 0).withReplicas(0), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"metrics are unavailable":            {withoutStats(autoscaledPool(1)), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"a rollout is under way":             {notProven, "True", true, false, v1alpha1.ReasonRollingOut, status.InProgressStatus},
		"too few workers are ready":          {newTestPool(2).withCurrentRevision(2).changeWorker("worker:1-0", unready), "False", true, false, v1alpha1.ReasonMinimumUnavailable, status.InProgressStatus},
		"a rollout without progress":         {rollingPool(4, 1).changeWorker("worker:2-0", unready), "True", false, true, v1alpha1.ReasonNoProgress, status.FailedStatus},
		"a step that its workers cannot end": {silentCanary(), "True", false, true, v1alpha1.ReasonNoProgress, status.FailedStatus},
		"a rollout with a bad image":         {rollingPool(4, 1).changeWorker("worker:2-0", failImagePull), "True", false, true, v1alpha1.ReasonImagePull, status.FailedStatus},
		"a failed canary":                    {canaryPool(10, 0, History{ProvenWorkers: 2, FailureMessage: "AnalysisFailed"}), "True", false, true, v1alpha1.ReasonAnalysisFailed, status.FailedStatus},
		"a missing Queue":                    {withMissingQueue(newTestPool(1).withCurrentRevision(1)), "False", true, false, v1alpha1.ReasonQueueNotFound, status.InProgressStatus},
		"a missing Secret":                   {withProblem(newTestPool(1), v1alpha1.ReasonSecretNotFound), "False", true, false, v1alpha1.ReasonSecretNotFound, status.InProgressStatus},
		"an invalid Secret":                  {withProblem(newTestPool(1), v1alpha1.ReasonSecretInvalid), "False", false, true, v1alpha1.ReasonSecretInvalid, status.FailedStatus},
		"no quota for an object":             {withRefusal(newTestPool(1), decision.QuotaExceeded), "False", true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"no quota for a Pod":                 {overQuota, "False", true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"an object is invalid":               {withRefusal(newTestPool(1), decision.Invalid), "False", false, true, v1alpha1.ReasonSpecInvalid, status.FailedStatus},
		"an object is denied":                {withRefusal(newTestPool(1), decision.PolicyDenied), "False", false, true, v1alpha1.ReasonPolicyDenied, status.FailedStatus},
		"the name of an object is taken":     {withRefusal(newTestPool(1), decision.AlreadyExists), "False", false, true, v1alpha1.ReasonNameTaken, status.FailedStatus},
		"being deleted":                      {withDeletionTimestamp(newTestPool(1).withCurrentRevision(1)), "False", true, false, v1alpha1.ReasonDeleting, status.TerminatingStatus},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(test.pool.Observation)
			conditions := d.Status.Conditions
			ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
			reconciling := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReconciling)
			stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)
			require.Equal(t, [2]string{string(test.wantReady), test.wantReason}, [2]string{string(ready.Status), ready.Reason})
			isRight := reconciling == test.wantReconciling && stalled == test.wantStalled
			require.True(t, isRight, "Reconciling %t, Stalled %t", reconciling, stalled)
			wp := test.pool.Pool.DeepCopy()
			wp.Status = d.Status
			kstatustest.AssertKstatus(t, wp, test.wantKstatus)
		})
	}
}

func TestRefusedPoolKeepsTryingEvery30Seconds(t *testing.T) {
	s := withRefusal(newTestPool(1), decision.QuotaExceeded)
	d := Decide(s.Observation)
	require.True(t, len(d.Resizes) == 1 && d.RequeueAfter == refusalInterval, "%d resizes, again after %s", len(d.Resizes), d.RequeueAfter)
}

// A pool with one ready worker and a backlog of ten. Each row is observed every two seconds for the time.
func TestWorkIsUndoneWhenNothingFinishesForTooLong(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	nothing := func(*testPool, time.Duration) {}
	unknown := func(s *testPool) { s.Stats = nil }
	unknownForHalfAnHour := func(s *testPool, elapsed time.Duration) {
		s.Stats = &QueueStats{BacklogStats: scaling.BacklogStats{Backlog: 10}}
		if elapsed > time.Minute && elapsed < 31*time.Minute {
			s.Stats = nil
		}
	}
	running := func(s *testPool, _ time.Duration) { s.Workers[0].Stats.InFlight, s.Stats.InFlight = 10, 10 }
	silent, empty := func(s *testPool) { s.Workers[0].Stats = nil }, func(s *testPool) { s.Stats.Backlog = 0 }
	for title, row := range map[string]struct {
		pool   func(*testPool)
		during func(*testPool, time.Duration)
		after  time.Duration
		want   metav1.ConditionStatus // of Ready
	}{
		"nothing runs, for less than five minutes": {nil, nothing, undoneTime - time.Second, yes},
		"nothing runs, for five minutes":           {nil, nothing, undoneTime, no},
		"a success every four minutes": {
			nil, func(s *testPool, elapsed time.Duration) {
				countOutcomes(1+int64(elapsed/(4*time.Minute)), 0)(&s.Workers[0])
			}, time.Hour, yes,
		},
		"all attempts fail": {nil, func(s *testPool, elapsed time.Duration) {
			s.Workers[0].Stats.InFlight, s.Stats.InFlight = 1, 1
			countOutcomes(1, int64(elapsed/time.Second))(&s.Workers[0])
		}, undoneTime, no},
		"handlers run, for less than the progress deadline": {nil, running, defaultProgressDeadline - time.Second, yes},
		"handlers run, for longer":                          {nil, running, defaultProgressDeadline, no},
		"handlers run, and nothing waits":                   {empty, running, time.Hour, yes},
		"messages that were given back wait": {nil, func(s *testPool, elapsed time.Duration) {
			s.Stats.Backlog, s.Stats.InFlight, s.Workers[0].Stats.Returned = 0, 10, 10
			s.Workers[0].Stats.Snoozed = new(int64(elapsed / time.Second))
		}, undoneTime, no},
		"nothing is due": {empty, nothing, time.Hour, yes},
		"retries wait for an hour": {
			func(s *testPool) { s.Stats.Backlog, s.Stats.InFlight, s.Stats.RetriesInFlight = 0, 10, true }, nothing, time.Hour - time.Second, yes,
		},
		"the stats are unknown for less than five minutes":     {unknown, nothing, undoneTime - time.Second, yes},
		"the stats are unknown for five minutes":               {unknown, nothing, undoneTime, metav1.ConditionUnknown},
		"unknown, and the pool should have no workers":         {func(s *testPool) { unknown(s.withReplicas(0)) }, nothing, time.Hour, yes},
		"the time while the stats were unknown does not count": {nil, unknownForHalfAnHour, 30*time.Minute + undoneTime - 3*time.Second, yes},
		"the time before and after it does":                    {nil, unknownForHalfAnHour, 30*time.Minute + undoneTime, no},
		"the pool should have no workers":                      {func(s *testPool) { s.withReplicas(0) }, nothing, time.Hour, yes},
		"a rate limit allows a message every ten minutes":      {func(s *testPool) { s.Limits.RatePerSecond = 1.0 / 600 }, nothing, 30*time.Minute - time.Second, yes},
		"workers count nothing, and the broker counts what finishes": {
			silent, func(s *testPool, elapsed time.Duration) { s.Stats.Finished = new(int64(elapsed / time.Minute)) }, time.Hour, yes,
		},
		"workers count nothing, and nothing finishes": {
			silent, func(s *testPool, _ time.Duration) { s.Stats.Finished = new(int64(7)) }, undoneTime, no,
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
			isRight := isUndone == (row.want == no) && meta.IsStatusConditionPresentAndEqual(conditions, v1alpha1.ConditionReady, row.want)
			require.True(t, isRight, "%+v", conditions)
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

func reporting(inFlight, prefetched int64) Worker {
	return Worker{Running: true, Stats: &WorkerStats{InFlight: inFlight, Prefetched: prefetched}}
}

func TestRunningMessagesAreThoseThatWorkersReport(t *testing.T) {
	silent, unstarted := Worker{Running: true}, Worker{}
	stopping, removable := Worker{Running: true, Terminating: true}, Worker{Running: true, RemovableSince: testTime}
	retries := func(inFlight int64) QueueStats {
		return QueueStats{InFlight: inFlight, InFlightKnown: true, RetriesInFlight: true}
	}
	mayWait := func(inFlight int64) QueueStats {
		return QueueStats{InFlight: inFlight, InFlightKnown: true, InFlightMayWait: true}
	}
	for title, test := range map[string]struct {
		stats                         QueueStats
		workers                       []Worker
		running, backlog, unaccounted int64
		mayBeDue                      bool // some that nobody reports, so that a busy pool grows
	}{
		"all messages run": {mayWait(10), []Worker{reporting(10, 0)}, 10, 0, 0, false},
		"a worker that does not answer may hold more messages than it handles":                     {mayWait(60), []Worker{silent}, 10, 50, 0, false},
		"some workers answer, others may hold the rest":                                            {mayWait(60), []Worker{reporting(3, 4), silent}, 13, 47, 0, false},
		"if all workers answer, the rest is delayed or lost":                                       {mayWait(60), []Worker{reporting(3, 4), reporting(2, 0)}, 5, 4, 51, true},
		"without workers, one is needed to receive them":                                           {mayWait(60), nil, 0, 0, 60, true},
		"55 retries of a pool whose workers are idle":                                              {retries(55), []Worker{reporting(0, 0), reporting(0, 0)}, 0, 0, 0, false},
		"55 retries of a pool without workers":                                                     {retries(55), nil, 0, 0, 0, false},
		"the workers' running jobs":                                                                {retries(60), []Worker{reporting(3, 0), reporting(2, 0)}, 5, 0, 0, false},
		"prefetched messages are backlog":                                                          {retries(60), []Worker{reporting(3, 4)}, 3, 4, 0, false},
		"a worker that does not answer may run its concurrency":                                    {retries(60), []Worker{reporting(3, 4), silent}, 13, 4, 0, false},
		"but not more than the broker counts":                                                      {retries(9), []Worker{reporting(3, 4), silent}, 5, 4, 0, false},
		"a worker that has not started runs nothing":                                               {retries(60), []Worker{unstarted}, 0, 0, 0, false},
		"workers that stop do not answer":                                                          {retries(60), []Worker{stopping, removable}, 0, 0, 0, false},
		"workers that report more than the broker counts":                                          {retries(5), []Worker{reporting(1<<24, 7)}, 5, 0, 0, false},
		"without retries, the rest is held by workers that are lost":                               {QueueStats{InFlight: 7, InFlightKnown: true}, []Worker{reporting(2, 1)}, 2, 1, 4, false},
		"a source without a count":                                                                 {QueueStats{}, []Worker{reporting(2, 1), silent}, 2, 1, 0, false},
		"workers with drain mode Signal report nothing: the count is bounded by their concurrency": {retries(55), []Worker{silent, silent}, 20, 0, 0, false},
	} {
		t.Run(title, func(t *testing.T) {
			before := test.stats
			got := test.stats.addWorkers(test.workers, 10)
			require.Equal(t, [3]int64{test.running, test.backlog, test.unaccounted}, [3]int64{got.Running, got.Backlog, got.Unaccounted})
			require.Equal(t, test.mayBeDue, got.RetriesDue)
			require.Equal(t, before, test.stats) // the observation does not change
		})
	}
}

func TestServiceTimeIsThatOfRecentAttempts(t *testing.T) {
	for title, test := range map[string]struct {
		recent     []*RecentAttempts
		running    int64
		service    time.Duration
		returnRate float64
	}{
		"workers that report none":          {[]*RecentAttempts{nil}, 9, 0, 0},
		"workers without attempts":          {[]*RecentAttempts{{}}, 9, 0, 0},
		"each attempt counts once":          {[]*RecentAttempts{{Count: 9, Seconds: 0.9}, {Count: 1, Seconds: 1.1}, nil}, 9, 200 * time.Millisecond, 0},
		"attempts that return arrive again": {[]*RecentAttempts{{Count: 240, Seconds: 240, Returned: 120}}, 9, time.Second, 1},
		"not more return than run":          {[]*RecentAttempts{{Count: 240, Seconds: 240, Returned: 120}}, 0, time.Second, 0},
		"an impossible duration is bounded": {[]*RecentAttempts{{Count: 1, Seconds: math.MaxFloat64}}, 1, maxServiceTime, 0},
		"an infinite duration is bounded":   {[]*RecentAttempts{{Count: 1, Seconds: math.Inf(1)}}, 1, maxServiceTime, 0},
		"a duration that is no number":      {[]*RecentAttempts{{Count: 1, Seconds: math.NaN()}}, 1, 0, 0},
		"a count that is no number":         {[]*RecentAttempts{{Count: math.NaN(), Seconds: 1}}, 1, 0, 0},
	} {
		t.Run(title, func(t *testing.T) {
			stats := &QueueStats{BacklogStats: scaling.BacklogStats{Running: test.running}}
			var workers []Worker
			for _, recent := range test.recent {
				workers = append(workers, Worker{Stats: &WorkerStats{Recent: recent}})
			}
			stats.addRecentAttempts(workers)
			require.Equal(t, test.service, stats.ServiceTime)
			require.True(t, math.Abs(stats.ReturnRate-test.returnRate) <= 1e-9, "%g return per second; want %g", stats.ReturnRate, test.returnRate)
		})
	}
}

// decideFor decides every two seconds, with the stats of that time, and returns the last decision.
func (s *testPool) decideFor(duration time.Duration, observe func(elapsed time.Duration)) Decision {
	var decision Decision
	for elapsed := time.Duration(0); elapsed <= duration; elapsed += scaling.DecisionInterval {
		s.Now = testTime.Add(elapsed)
		observe(elapsed)
		decision = Decide(s.Observation)
		s.Memory, s.Pool.Status = decision.Memory, decision.Status
	}
	return decision
}

// retryStats are the stats of a queue with messages that wait for a retry.
func retryStats(readings ...broker.QueueStats) *QueueStats {
	var all []QueueReading
	for _, stats := range readings {
		stats.RetriesInFlight = true
		all = append(all, QueueReading{Queue: broker.QueueConfig{Lease: 30 * time.Second}, Stats: stats})
	}
	return CombineReadings(all)
}

func TestMessagesThatWaitForARetryNeedNoWorkers(t *testing.T) {
	s := autoscaledPool(1)
	s.Pool.Spec.Autoscaling.IdleAfter = durationSeconds(60)
	s.decideFor(30*time.Second, func(time.Duration) { s.Stats = retryStats(broker.QueueStats{InFlight: 55, TotalArrivals: 55}) })
	before := s.Pool.Status
	isIdle := before.LastDecision.Recommendation == 0 && before.Desired == 1 && *before.InFlight == 55
	require.True(t, isIdle, "before idleAfter: %d desired, %d in flight", before.Desired, *before.InFlight)
	s.decideFor(70*time.Second, func(time.Duration) {})
	require.True(t, s.Pool.Status.Desired == 0, "after idleAfter: %s", s.Pool.Status.LastDecision.Message)
	// A retry that is due scales the pool from zero; one of a suspended queue does not.
	s.Workers, s.Stats = nil, retryStats(broker.QueueStats{InFlight: 55, TotalArrivals: 55, RetryDue: true})
	got := Decide(s.Observation).Status
	require.Equal(t, [3]int64{1, 1, 55}, [3]int64{int64(got.Desired), *got.Backlog, *got.InFlight})
	due := broker.QueueStats{InFlight: 1, RetriesInFlight: true, RetryDue: true}
	s.Stats = CombineReadings([]QueueReading{{Queue: broker.QueueConfig{Paused: true}, Stats: due}})
	require.Equal(t, 0, Decide(s.Observation).Status.Desired)
}

// 20 messages arrive per second and take 50 ms each, so one runs on average. Some attempts fail, and are retried after 25 s.
func TestRetriesDoNotChangeTheServiceTime(t *testing.T) {
	for title, report := range map[string]func(count float64) *RecentAttempts{
		"as workers report it": func(count float64) *RecentAttempts {
			return &RecentAttempts{Count: count, Seconds: 0.05 * count, Returned: count / 10}
		},
		"as derived from finished messages": func(float64) *RecentAttempts { return nil },
	} {
		t.Run(title, func(t *testing.T) {
			s := autoscaledPool(1)
			decision := s.decideFor(4*time.Minute, func(elapsed time.Duration) {
				arrived := 20 * elapsed.Seconds()
				waiting := min(arrived/10, 50)
				s.Stats = retryStats(broker.QueueStats{InFlight: int64(waiting) + 1, TotalArrivals: uint64(arrived)})
				s.Workers[0].Stats.InFlight = 1
				s.Workers[0].Stats.Recent = report(arrived)
				got := s.Pool.Status.Desired
				require.True(t, got == 1, "after %s: %d workers: %+v", elapsed, got, s.Pool.Status.LastDecision)
			})
			rates := &decision.Memory.Rates
			got := cmp.Or(rates.ReportedServiceSeconds, rates.BusySeconds/rates.BusyFinished)
			require.True(t, got >= 0.045 && got <= 0.06, "the service time is %.3f s", got)
		})
	}
}

func TestALostTaskOfAnEngineThatRecoversItInWorkersKeepsAWorker(t *testing.T) {
	s := autoscaledPool(1)
	s.Pool.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 5, IdleAfter: durationSeconds(2)}
	s.Stats.InFlight = 1
	decision := s.decideFor(time.Minute, func(time.Duration) {})
	require.True(t, decision.Status.Desired == 1, "%d desired", decision.Status.Desired)
}
