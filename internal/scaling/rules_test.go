package scaling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Each rule by itself, in the order in which Decide goes through them.
func TestDecide(t *testing.T) {
	saturated := known(5)
	saturated.Saturation = Saturation{Frozen: 5}
	idleFor := func(d time.Duration) Memory {
		m := known(0)
		m.IdleSince = noon.Add(-d)
		return m
	}
	missingFor := func(d time.Duration) Memory { return Memory{MissingSince: noon.Add(-d)} }
	wanted := func(ago time.Duration, want int32) Memory {
		m := known(8)
		m.Wants = append(m.Wants,
			Span{Start: noon.Add(-ago), Least: want, Most: want}, Span{Start: noon.Add(2*time.Second - ago), Least: 1, Most: 1})
		return m
	}
	shrunk := func(ago time.Duration, from int32) Memory {
		m := known(8)
		m.Down = Ramp{From: from, Last: noon.Add(-ago)}
		return m
	}
	for title, test := range map[string]struct {
		in   Input
		want outcome
	}{
		"the first message wakes a sleeping pool": {
			at(0, &Figures{Backlog: 1}, Memory{}), outcome{1, 1, ReasonDemand},
		},
		"a burst wakes it to as many as clear it in what is left of the objective": {
			// 30 s less 10 s for the Pods to start: 2,000 in 20 s are 100 at once.
			at(0, &Figures{Backlog: 2000}, known(0)), outcome{10, 10, ReasonDemand},
		},
		"before any message was finished it is taken to last a second": {
			at(0, &Figures{Backlog: 2000}, Memory{}), outcome{10, 10, ReasonDemand},
		},
		"the longer the oldest has waited the more it takes": {
			at(0, &Figures{Backlog: 1000, OldestAge: 12 * time.Second}, known(0)), outcome{13, 13, ReasonDemand},
		},
		"what is too late is to be cleared in four seconds": {
			at(0, &Figures{Backlog: 400, OldestAge: time.Hour}, known(0)), outcome{10, 10, ReasonDemand},
		},
		"steady work gets room for what comes unevenly": {
			at(1, &Figures{InFlight: 10}, known(40)), outcome{5, 5, ReasonDemand},
		},
		"that room serves a backlog too": {
			// 40/s are 5 workers at 80 %; 40/s and 100 in 20 s are 45/s, which 5 can do.
			at(5, &Figures{Backlog: 100, InFlight: 50}, known(40)), outcome{5, 5, ReasonDemand},
		},
		"slower messages need more workers": {
			at(1, &Figures{InFlight: 10, ServiceTime: 4 * time.Second}, known(10)), outcome{5, 5, ReasonDemand},
		},
		"a number of messages per worker may ask for more": {
			at(1, &Figures{Backlog: 40}, known(0), func(p *Policy) { p.BacklogPerReplica = 5 }), outcome{8, 8, ReasonDemand},
		},
		"it alone counts while nobody knows how long messages take": {
			at(1, &Figures{Backlog: 2000}, Memory{}, func(p *Policy) { p.BacklogPerReplica = 500 }), outcome{4, 4, ReasonDemand},
		},

		"workers that the rate limit keeps from beginning anything are left out": {
			at(1, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.RatePerSecond = 16 }), outcome{10, 2, ReasonRateLimit},
		},
		"a rate limit leaves one worker at least": {
			at(0, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.RatePerSecond = 0.01 }), outcome{10, 1, ReasonRateLimit},
		},
		"workers that maxInFlight keeps from having anything are left out": {
			at(1, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.MaxInFlight = 25 }), outcome{10, 3, ReasonMaxInFlight},
		},

		"the last worker stays until nothing has been to do for long": {
			at(1, &Figures{}, idleFor(59*time.Second)), outcome{0, 1, ReasonNotIdleForLong},
		},
		"then it goes": {
			at(1, &Figures{}, idleFor(time.Minute)), outcome{0, 0, ReasonIdle},
		},
		"the last worker stays while it works": {
			at(1, &Figures{InFlight: 1}, idleFor(time.Hour)), outcome{1, 1, ReasonDemand},
		},
		"a sleeping pool is not woken by what has come before": {
			at(0, &Figures{}, known(100)), outcome{13, 0, ReasonIdle},
		},

		"there are never fewer than minReplicas": {
			at(0, &Figures{}, Memory{}, func(p *Policy) { p.Min = 3 }), outcome{0, 3, ReasonMinReplicas},
		},
		"nor more than maxReplicas": {
			at(1, &Figures{Backlog: 1e9}, known(0)), outcome{mostReplicas, 20, ReasonMaxReplicas},
		},
		"nor more than the budget, whatever minReplicas says": {
			at(0, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.Budget, p.Min = new(int32(4)), 6 }),
			outcome{10, 4, ReasonBudget},
		},
		"a bound that was lowered has busy workers drained": {
			at(8, &Figures{Backlog: 100, InFlight: 80}, known(90), func(p *Policy) { p.Max = 4 }), outcome{12, 4, ReasonMaxReplicas},
		},
		"a bound that was lowered is reached step by step": {
			at(20, &Figures{}, known(0), func(p *Policy) { p.Max = 5 }), outcome{0, 8, ReasonStep},
		},

		"a pool that finishes no more with more workers does not grow": {
			at(10, &Figures{Backlog: 5000, InFlight: 100, Finished: new(int64(9))}, saturated), outcome{26, 10, ReasonSaturated},
		},
		"it may shrink": {
			at(10, &Figures{InFlight: 5}, saturated), outcome{1, 4, ReasonStep},
		},

		"growth that is too little is not worth it": {
			at(10, &Figures{InFlight: 80}, known(88)), outcome{11, 10, ReasonWithinTolerance},
		},
		"nor is shrinking": {
			at(10, &Figures{InFlight: 70}, known(72)), outcome{9, 10, ReasonWithinTolerance},
		},
		"the last step up to maxReplicas is": {
			at(19, &Figures{Backlog: 5000}, known(0)), outcome{25, 20, ReasonMaxReplicas},
		},
		"growth goes to the least that was wanted in its window": {
			at(2, &Figures{Backlog: 2000}, wanted(5*time.Second, 4), func(p *Policy) { p.Up.Window = 4 * time.Second }),
			outcome{11, 2, ReasonWindow},
		},
		"growth goes by its step": {
			at(2, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.Up = Rule{Step: Step{Count: 3}, Period: time.Second} }),
			outcome{10, 5, ReasonStep},
		},
		"waking from zero does not wait for a window": {
			at(0, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.Up.Window = time.Minute }), outcome{10, 10, ReasonDemand},
		},
		"shrinking goes to the most that was wanted in its window": {
			at(10, &Figures{InFlight: 8}, wanted(10*time.Second, 8)), outcome{1, 8, ReasonWindow},
		},
		"what was wanted before the window does not count": {
			at(10, &Figures{InFlight: 8}, wanted(time.Minute, 8)), outcome{1, 4, ReasonStep},
		},
		"nobody knows what was wanted in a window that is not over": {
			at(10, &Figures{InFlight: 8}, Memory{}), outcome{1, 10, ReasonWindow},
		},
		"shrinking goes by its step": {
			at(10, &Figures{InFlight: 8}, known(8)), outcome{1, 4, ReasonStep},
		},
		"once in a period": {
			at(10, &Figures{InFlight: 8}, shrunk(29*time.Second, 20)), outcome{1, 10, ReasonStep},
		},
		"a step is a part of those there were when the shrinking began": {
			at(10, &Figures{InFlight: 8}, shrunk(30*time.Second, 12)), outcome{1, 2, ReasonStep},
		},
		"shrinking never goes below what is busy": {
			at(10, &Figures{InFlight: 61}, known(8)), outcome{7, 7, ReasonDemand},
		},

		"without figures it stays as it is": {
			at(7, nil, Memory{}), outcome{7, 7, ReasonNoFigures},
		},
		"also at zero": {
			at(0, nil, missingFor(time.Hour)), outcome{0, 0, ReasonNoFigures},
		},
		"without figures for long it goes up to the fallback": {
			at(2, nil, missingFor(time.Minute), func(p *Policy) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{2, 5, ReasonFallback},
		},
		"not down to it": {
			at(8, nil, missingFor(time.Hour), func(p *Policy) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{8, 8, ReasonNoFigures},
		},
		"not before its time": {
			at(2, nil, missingFor(59*time.Second), func(p *Policy) { p.Fallback = &Fallback{5, time.Minute} }),
			outcome{2, 2, ReasonNoFigures},
		},
		"a fallback keeps to the bounds": {
			at(2, nil, missingFor(time.Hour), func(p *Policy) { p.Fallback, p.Max = &Fallback{5, time.Minute}, 3 }),
			outcome{2, 3, ReasonFallback},
		},

		"while it is paused nothing changes": {
			at(2, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.PausedUntil = noon.Add(time.Second) }),
			outcome{10, 2, ReasonPaused},
		},
		"a pause ends by itself": {
			at(2, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.PausedUntil = noon }), outcome{10, 10, ReasonDemand},
		},
		"a dry run only tells": {
			at(2, &Figures{Backlog: 2000}, known(0), func(p *Policy) { p.DryRun = true }), outcome{10, 2, ReasonDryRun},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, outcomeOf(test.in)); diff != "" {
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
			in := at(4, &Figures{Backlog: test.backlog}, known(0))
			in.Ready = 1
			if got := Decide(in).Applied; got != test.want {
				t.Errorf("%d workers, want %d", got, test.want)
			}
		})
	}
}
