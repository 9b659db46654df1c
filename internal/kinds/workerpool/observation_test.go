package workerpool

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
)

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
