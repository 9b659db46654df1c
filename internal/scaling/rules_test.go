package scaling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each rule by itself, in the order in which Decide goes through them.
func TestDecide(t *testing.T) {
	saturated := memoryWithRate(5)
	saturated.Saturation = Saturation{SaturatedRate: 5}
	idleFor := func(d time.Duration) Memory {
		m := memoryWithRate(0)
		m.IdleSince = testTime.Add(-d)
		return m
	}
	missingFor := func(d time.Duration) Memory { return Memory{MissingSince: testTime.Add(-d)} }
	wanted := func(ago time.Duration, want int32) Memory {
		m := memoryWithRate(8)
		m.Recommendations = append(m.Recommendations,
			RecommendationSpan{Start: testTime.Add(-ago), Min: want, Max: want}, RecommendationSpan{Start: testTime.Add(2*time.Second - ago), Min: 1, Max: 1})
		return m
	}
	shrunk := func(ago time.Duration, from int32) Memory {
		m := memoryWithRate(8)
		m.ScaleDown = ScaleRamp{StartReplicas: from, LastChange: testTime.Add(-ago)}
		return m
	}
	for title, test := range map[string]struct {
		in   Observation
		want outcome
	}{
		"the first message wakes a sleeping pool": {
			observationOf(0, &BacklogStats{Backlog: 1}, Memory{}), outcome{1, 1, ReasonDemand},
		},
		"a burst wakes it to as many as clear it in what is left of the objective": {
			// 30 s less 10 s for the Pods to start: 2,000 in 20 s are 100 at once.
			observationOf(0, &BacklogStats{Backlog: 2000}, memoryWithRate(0)), outcome{10, 10, ReasonDemand},
		},
		"before any message was finished it is taken to last a second": {
			observationOf(0, &BacklogStats{Backlog: 2000}, Memory{}), outcome{10, 10, ReasonDemand},
		},
		"the longer the oldest has waited the more it takes": {
			observationOf(0, &BacklogStats{Backlog: 1000, OldestAge: 12 * time.Second}, memoryWithRate(0)), outcome{13, 13, ReasonDemand},
		},
		"what is too late is to be cleared in four seconds": {
			observationOf(0, &BacklogStats{Backlog: 400, OldestAge: time.Hour}, memoryWithRate(0)), outcome{10, 10, ReasonDemand},
		},
		"steady work gets room for what comes unevenly": {
			observationOf(1, &BacklogStats{InFlight: 10}, memoryWithRate(40)), outcome{5, 5, ReasonDemand},
		},
		"that room serves a backlog too": {
			// 40/s are 5 workers at 80 %; 40/s and 100 in 20 s are 45/s, which 5 can do.
			observationOf(5, &BacklogStats{Backlog: 100, InFlight: 50}, memoryWithRate(40)), outcome{5, 5, ReasonDemand},
		},
		"slower messages need more workers": {
			observationOf(1, &BacklogStats{InFlight: 10, ServiceTime: 4 * time.Second}, memoryWithRate(10)), outcome{5, 5, ReasonDemand},
		},
		"a number of messages per worker may ask for more": {
			observationOf(1, &BacklogStats{Backlog: 40}, memoryWithRate(0), func(p *Settings) { p.BacklogPerReplica = 5 }), outcome{8, 8, ReasonDemand},
		},
		"it alone counts while nobody knows how long messages take": {
			observationOf(1, &BacklogStats{Backlog: 2000}, Memory{}, func(p *Settings) { p.BacklogPerReplica = 500 }), outcome{4, 4, ReasonDemand},
		},

		"workers that the rate limit keeps from beginning anything are left out": {
			observationOf(1, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.RatePerSecond = 16 }), outcome{10, 2, ReasonRateLimit},
		},
		"a rate limit leaves one worker at least": {
			observationOf(0, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.RatePerSecond = 0.01 }), outcome{10, 1, ReasonRateLimit},
		},
		"workers that maxInFlight keeps from having anything are left out": {
			observationOf(1, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.MaxInFlight = 25 }), outcome{10, 3, ReasonMaxInFlight},
		},

		"the last worker stays until nothing has been to do for long": {
			observationOf(1, &BacklogStats{}, idleFor(59*time.Second)), outcome{0, 1, ReasonIdleAfter},
		},
		"then it goes": {
			observationOf(1, &BacklogStats{}, idleFor(time.Minute)), outcome{0, 0, ReasonIdle},
		},
		"the last worker stays while it works": {
			observationOf(1, &BacklogStats{InFlight: 1}, idleFor(time.Hour)), outcome{1, 1, ReasonDemand},
		},
		"a sleeping pool is not woken by what has come before": {
			observationOf(0, &BacklogStats{}, memoryWithRate(100)), outcome{13, 0, ReasonIdle},
		},

		"there are never fewer than minReplicas": {
			observationOf(0, &BacklogStats{}, Memory{}, func(p *Settings) { p.MinReplicas = 3 }), outcome{0, 3, ReasonMinReplicas},
		},
		"nor more than maxReplicas": {
			observationOf(1, &BacklogStats{Backlog: 1e9}, memoryWithRate(0)), outcome{maxReplicas, 20, ReasonMaxReplicas},
		},
		"nor more than the budget, whatever minReplicas says": {
			observationOf(0, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.Budget, p.MinReplicas = new(int32(4)), 6 }),
			outcome{10, 4, ReasonBudget},
		},
		"a bound that was lowered has busy workers drained": {
			observationOf(8, &BacklogStats{Backlog: 100, InFlight: 80}, memoryWithRate(90), func(p *Settings) { p.MaxReplicas = 4 }), outcome{12, 4, ReasonMaxReplicas},
		},
		"a bound that was lowered is reached step by step": {
			observationOf(20, &BacklogStats{}, memoryWithRate(0), func(p *Settings) { p.MaxReplicas = 5 }), outcome{0, 8, ReasonMaxStep},
		},

		"a pool that finishes no more with more workers does not grow": {
			observationOf(10, &BacklogStats{Backlog: 5000, InFlight: 100, Finished: new(int64(9))}, saturated), outcome{26, 10, ReasonThroughputSaturated},
		},
		"it may shrink": {
			observationOf(10, &BacklogStats{InFlight: 5}, saturated), outcome{1, 4, ReasonMaxStep},
		},

		"growth that is too little is not worth it": {
			observationOf(10, &BacklogStats{InFlight: 80}, memoryWithRate(88)), outcome{11, 10, ReasonWithinTolerance},
		},
		"nor is shrinking": {
			observationOf(10, &BacklogStats{InFlight: 70}, memoryWithRate(72)), outcome{9, 10, ReasonWithinTolerance},
		},
		"the last step up to maxReplicas is": {
			observationOf(19, &BacklogStats{Backlog: 5000}, memoryWithRate(0)), outcome{25, 20, ReasonMaxReplicas},
		},
		"growth goes to the least that was wanted in its window": {
			observationOf(2, &BacklogStats{Backlog: 2000}, wanted(5*time.Second, 4), func(p *Settings) { p.ScaleUp.Window = 4 * time.Second }),
			outcome{11, 2, ReasonStabilizationWindow},
		},
		"growth goes by its step": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.ScaleUp = ScaleRule{Step: ScaleStep{Count: 3}, Period: time.Second} }),
			outcome{10, 5, ReasonMaxStep},
		},
		"waking from zero does not wait for a window": {
			observationOf(0, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.ScaleUp.Window = time.Minute }), outcome{10, 10, ReasonDemand},
		},
		"shrinking goes to the most that was wanted in its window": {
			observationOf(10, &BacklogStats{InFlight: 8}, wanted(10*time.Second, 8)), outcome{1, 8, ReasonStabilizationWindow},
		},
		"what was wanted before the window does not count": {
			observationOf(10, &BacklogStats{InFlight: 8}, wanted(time.Minute, 8)), outcome{1, 4, ReasonMaxStep},
		},
		"nobody knows what was wanted in a window that is not over": {
			observationOf(10, &BacklogStats{InFlight: 8}, Memory{}), outcome{1, 10, ReasonStabilizationWindow},
		},
		"shrinking goes by its step": {
			observationOf(10, &BacklogStats{InFlight: 8}, memoryWithRate(8)), outcome{1, 4, ReasonMaxStep},
		},
		"once in a period": {
			observationOf(10, &BacklogStats{InFlight: 8}, shrunk(29*time.Second, 20)), outcome{1, 10, ReasonMaxStep},
		},
		"a step is a part of those there were when the shrinking began": {
			observationOf(10, &BacklogStats{InFlight: 8}, shrunk(30*time.Second, 12)), outcome{1, 2, ReasonMaxStep},
		},
		"shrinking never goes below what is busy": {
			observationOf(10, &BacklogStats{InFlight: 61}, memoryWithRate(8)), outcome{7, 7, ReasonDemand},
		},

		"without figures it stays as it is": {
			observationOf(7, nil, Memory{}), outcome{7, 7, ReasonStatsUnavailable},
		},
		"also at zero": {
			observationOf(0, nil, missingFor(time.Hour)), outcome{0, 0, ReasonStatsUnavailable},
		},
		"without figures for long it goes up to the fallback": {
			observationOf(2, nil, missingFor(time.Minute), func(p *Settings) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{2, 5, ReasonFallback},
		},
		"not down to it": {
			observationOf(8, nil, missingFor(time.Hour), func(p *Settings) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{8, 8, ReasonStatsUnavailable},
		},
		"not before its time": {
			observationOf(2, nil, missingFor(59*time.Second), func(p *Settings) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{2, 2, ReasonStatsUnavailable},
		},
		"a fallback keeps to the bounds": {
			observationOf(2, nil, missingFor(time.Hour), func(p *Settings) { p.Fallback, p.MaxReplicas = &Fallback{5, time.Minute}, 3 }),
			outcome{2, 3, ReasonFallback},
		},

		"while it is paused nothing changes": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.PausedUntil = testTime.Add(time.Second) }),
			outcome{10, 2, ReasonPaused},
		},
		"a pause ends by itself": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.PausedUntil = testTime }), outcome{10, 10, ReasonDemand},
		},
		"a dry run only tells": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.DryRun = true }), outcome{10, 2, ReasonDryRun},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decideOutcome(test.in)); diff != "" {
				t.Errorf("Decide differs (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestWhileWorkersStartOnlyTwiceAsManyAreWorthIt(t *testing.T) {
	for title, test := range map[string]struct {
		backlog int64
		want    int32
	}{
		"half as many again": {1200, 4},
		"twice as many":      {1700, 9},
	} {
		t.Run(title, func(t *testing.T) {
			in := observationOf(4, &BacklogStats{Backlog: test.backlog}, memoryWithRate(0))
			in.Ready = 1
			if got := Decide(in).Applied; got != test.want {
				t.Errorf("%d workers, want %d", got, test.want)
			}
		})
	}
}
