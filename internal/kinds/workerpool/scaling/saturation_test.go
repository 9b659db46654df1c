package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/test/require"
)

func ago(d time.Duration) time.Time { return testTime.Add(-d) }

// saturable is an observation of four ready and busy workers with two handlers each, and a memory in which two workers had a throughput of
// ten messages per second. Four should have at least 12.5. A message takes one second.
type saturable struct {
	Observation
	Saturation
	rates Rates
}

func newSaturable() *saturable {
	in := Observation{
		Now: testTime, Settings: Settings{Concurrency: 2}, Replicas: 4, Ready: 4,
		Stats: &BacklogStats{Backlog: 9, Running: 8, Finished: new(int64(100))},
	}
	return &saturable{in, Saturation{BaselineReady: 2, BaselineRate: 10, Ready: 4, ReadySince: ago(time.Minute)}, Rates{FinishRate: 12.4}}
}

func TestThroughputIsComparedWithTheBaseline(t *testing.T) {
	type change = func(c *saturable)
	rate := func(perSecond float64) change { return func(c *saturable) { c.rates.FinishRate = perSecond } }
	running := func(messages int64) change { return func(c *saturable) { c.Stats.Running = messages } }
	saturatedAt := func(perSecond float64) change { return func(c *saturable) { c.SaturatedRate = perSecond } }
	baseline := func(ready int32, perSecond float64) change {
		return func(c *saturable) { c.BaselineReady, c.BaselineRate = ready, perSecond }
	}
	readySince := func(ready int32, since time.Time) change {
		return func(c *saturable) { c.Saturation.Ready, c.ReadySince = ready, since }
	}
	all := func(changes ...change) change {
		return func(c *saturable) {
			for _, one := range changes {
				one(c)
			}
		}
	}
	withoutBaseline, forgotten := baseline(0, 0), all(baseline(0, 0), saturatedAt(0))
	for title, row := range map[string]struct {
		change change
		grows  bool
		want   change // of the memory before
	}{
		"it did not grow":  {all(), false, saturatedAt(12.4)},
		"it grew enough":   {rate(12.5), false, baseline(4, 12.5)},
		"nothing finishes": {rate(0), false, saturatedAt(minSaturatedRate)},
		"the workers are ready for less than 13 seconds": {readySince(4, ago(13*time.Second-1)), false, all()},
		"the workers are ready for 13 seconds":           {readySince(4, ago(13*time.Second)), false, saturatedAt(12.4)},
		"the workers had no time for three messages": {
			all(readySince(4, ago(15*time.Second)), func(c *saturable) { c.rates.ReportedServiceSeconds = 2 }), false, all(),
		},
		"it grew, but may not be settled":                  {all(readySince(4, ago(time.Second)), rate(20)), false, all()},
		"a worker is not busy":                             {running(6), false, all()},
		"a handler is not busy":                            {running(7), false, saturatedAt(12.4)},
		"a worker is not ready":                            {func(c *saturable) { c.Replicas = 5 }, false, all()},
		"fewer than twice the workers":                     {baseline(3, 10), false, all()},
		"saturated, and hardly more":                       {all(saturatedAt(10), rate(12.5)), false, all()},
		"saturated, and a quarter more":                    {all(saturatedAt(10), rate(12.6)), false, forgotten},
		"no backlog":                                       {all(saturatedAt(10), running(0), func(c *saturable) { c.Stats.Backlog = 0 }), false, forgotten},
		"unknown":                                          {all(saturatedAt(10), func(c *saturable) { c.Stats.Finished = nil }), true, forgotten},
		"no baseline, and the pool does not grow":          {all(withoutBaseline, running(6)), false, all()},
		"no baseline, and the pool grows":                  {all(withoutBaseline, running(6)), true, baseline(4, 12.4)},
		"no baseline, and all workers are busy":            {withoutBaseline, false, baseline(4, 12.4)},
		"no worker is ready any more":                      {all(withoutBaseline, func(c *saturable) { c.Observation.Ready = 0 }), true, readySince(0, testTime)},
		"no worker is ready yet":                           {func(c *saturable) { c.Saturation.Ready, c.Observation.Ready = 0, 0 }, false, all()},
		"workers are ready as an operator starts":          {readySince(0, time.Time{}), false, readySince(4, testTime)},
		"as many workers as before, since an unknown time": {readySince(4, time.Time{}), false, readySince(4, testTime)},
		"another number of workers is ready":               {readySince(3, ago(time.Minute)), false, readySince(4, testTime)},
		"a clock that was set back":                        {readySince(4, testTime.Add(time.Hour)), false, readySince(4, testTime)},
		"the first workers are ready": {
			func(c *saturable) { c.Saturation.Ready, c.Replicas = 0, 5 }, false, all(readySince(4, testTime), func(c *saturable) { c.ActiveSince = testTime }),
		},
	} {
		t.Run(title, func(t *testing.T) {
			got, want := newSaturable(), newSaturable()
			row.change(got)
			all(row.change, row.want)(want)
			got.updateSaturation(got.Observation, &got.rates, row.grows)
			require.Equal(t, want.Saturation, got.Saturation)
		})
	}
}

func TestAScaleUpWaitsForTheThroughputOfTheLastOne(t *testing.T) {
	warmingUp := func(since time.Duration, finishRate float64) func(*saturable, *replicaTarget) {
		return func(c *saturable, _ *replicaTarget) {
			c.Saturation, c.rates.FinishRate = Saturation{ActiveSince: ago(since)}, finishRate
		}
	}
	for title, row := range map[string]struct {
		change func(*saturable, *replicaTarget)
		want   Reason // of a pool that keeps its workers; empty if it scales up
	}{
		"throughput did not grow":             {func(*saturable, *replicaTarget) {}, ReasonThroughputUnproven},
		"it grew":                             {func(c *saturable, _ *replicaTarget) { c.rates.FinishRate = 12.5 }, ""},
		"it is saturated":                     {func(c *saturable, _ *replicaTarget) { c.SaturatedRate, c.rates.FinishRate = 10, 20 }, ReasonThroughputSaturated},
		"it is unknown":                       {func(c *saturable, _ *replicaTarget) { c.Stats.Finished = nil }, ""},
		"no worker is ready":                  {func(c *saturable, _ *replicaTarget) { c.Observation.Ready, c.SaturatedRate = 0, 10 }, ""},
		"fewer workers than minimum":          {func(_ *saturable, n *replicaTarget) { n.lower = 5 }, ""},
		"as many as the minimum":              {func(_ *saturable, n *replicaTarget) { n.lower = 4 }, ReasonThroughputUnproven},
		"the first workers have just started": {warmingUp(12*time.Second, 1.9), ReasonThroughputUnproven}, // of eight that they could finish
		"the first workers finish messages":   {warmingUp(12*time.Second, 2), ""},
		"the first workers had time":          {warmingUp(13*time.Second, 0), ""},
	} {
		for _, wanted := range []int32{3, 4, 6} {
			c, n := newSaturable(), replicaTarget{value: wanted, reason: ReasonDemand, upper: 9}
			row.change(c, &n)
			value, reason := wanted, ReasonDemand
			if row.want != "" && wanted > c.Replicas {
				value, reason = c.Replicas, row.want
			}
			n.applySaturation(c.Observation, c.Saturation, &c.rates)
			require.True(t, n.value == value && n.reason == reason, "%s, %d wanted: %d, %s; want %d, %s", title, wanted, n.value, n.reason, value, reason)
		}
	}
}

func TestTheChangesOfAPeriodAreOneStep(t *testing.T) {
	four, half := new(intstr.FromInt32(4)), new(intstr.FromString("50%"))
	for title, row := range map[string]struct {
		step   *intstr.IntOrString
		before ScaleRamp
		wanted int32
		want   int32
		after  ScaleRamp
	}{
		"no step":                     {nil, ScaleRamp{}, 9, maxReplicas, ScaleRamp{}},
		"the first change":            {four, ScaleRamp{}, 9, 4, ScaleRamp{20, 20, testTime}},
		"a part of the workers":       {half, ScaleRamp{}, 19, 10, ScaleRamp{20, 20, testTime}},
		"decided again":               {half, ScaleRamp{10, 20, testTime}, 9, 5, ScaleRamp{10, 20, testTime}},
		"a rest of the step":          {four, ScaleRamp{19, 19, ago(30 * time.Second)}, 3, 3, ScaleRamp{19, 19, ago(30 * time.Second)}},
		"less than the rest":          {four, ScaleRamp{19, 19, ago(30 * time.Second)}, 2, 0, ScaleRamp{19, 19, ago(30 * time.Second)}},
		"after a large change":        {four, ScaleRamp{18, 18, ago(30 * time.Second)}, 9, 0, ScaleRamp{18, 18, ago(30 * time.Second)}},
		"in the next period":          {half, ScaleRamp{10, 15, ago(time.Minute)}, 9, 5, ScaleRamp{10, 20, testTime}},
		"at the end of two periods":   {half, ScaleRamp{10, 15, ago(2 * time.Minute)}, 9, 5, ScaleRamp{10, 20, testTime}},
		"after two periods":           {half, ScaleRamp{10, 15, ago(2*time.Minute + 1)}, 19, 10, ScaleRamp{20, 20, testTime}},
		"a clock that was set back":   {half, ScaleRamp{10, 15, testTime.Add(time.Hour)}, 19, 10, ScaleRamp{20, 20, testTime}},
		"a step that is not a number": {new(intstr.FromString("x")), ScaleRamp{}, 9, maxReplicas, ScaleRamp{20, 20, testTime}},
	} {
		got := row.before
		allowed := got.allowedChange(Observation{Now: testTime, Replicas: 20}, ScaleRule{Step: row.step, Period: time.Minute}, row.wanted)
		require.True(t, allowed == row.want && got == row.after, "%s: %d and %+v, want %d and %+v", title, allowed, got, row.want, row.after)
	}
}

func TestRatesAreMeasuredFromEachCounterThatIsKnown(t *testing.T) {
	const elapsed = 10
	kept, busyKept := math.Exp(-elapsed/rateTimeConstant.Seconds()), math.Exp(-elapsed/serviceTimeConstant.Seconds())
	trendKept := math.Exp(-elapsed / trendTimeConstant.Seconds())
	burst := maxBurstFactor * 2 / ((60*busyKept + 40) / (30 * busyKept)) // two handlers, by the service time
	for title, row := range map[string]struct {
		running           int64
		finished, arrived *int64
		want              Rates
	}{
		"messages run and finish":  {4, new(int64(110)), nil, Rates{FinishRate: 1 - kept, ArrivalRate: 1 - kept, TrendRate: 1 - trendKept, LatestRate: 1, BusySeconds: 60*busyKept + 40, BusyFinished: 30*busyKept + 10}},
		"messages only run":        {4, new(int64(100)), nil, Rates{BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"messages only finish":     {0, new(int64(110)), nil, Rates{FinishRate: 1 - kept, ArrivalRate: .6 * (1 - kept), TrendRate: .6 * (1 - trendKept), LatestRate: .6, BusySeconds: 60 * busyKept, BusyFinished: 30*busyKept + 10}},
		"nothing runs":             {0, new(int64(100)), nil, Rates{BusySeconds: 60, BusyFinished: 30}},
		"arrivals are counted":     {4, new(int64(100)), new(int64(1020)), Rates{ArrivalRate: 2 * (1 - kept), TrendRate: 2 * (1 - trendKept), LatestRate: 2, BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"a burst":                  {4, new(int64(100)), new(int64(9000)), Rates{ArrivalRate: burst * (1 - kept), TrendRate: burst * (1 - trendKept), LatestRate: burst, BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"a counter that was reset": {4, new(int64(99)), new(int64(999)), Rates{BusySeconds: 60, BusyFinished: 30}},
		"an unknown counter":       {4, nil, nil, Rates{BusySeconds: 60, BusyFinished: 30}},
	} {
		got := Rates{MeasuredAt: ago(elapsed * time.Second), Arrived: new(int64(1000)), Finished: new(int64(100)), Outstanding: 10, BusySeconds: 60, BusyFinished: 30}
		got.updateRates(Observation{Now: testTime, Settings: Settings{Concurrency: 2}, Stats: &BacklogStats{Backlog: 6, Running: row.running, Finished: row.finished, Arrived: row.arrived}})
		require.True(t, got.MeasuredAt.Equal(testTime) && got.Outstanding == 6+row.running, "%s: %+v is not measured now", title, got)
		got.MeasuredAt, got.Outstanding, got.Arrived, got.Finished = time.Time{}, 0, nil, nil
		for name, values := range map[string][2]float64{
			"FinishRate": {got.FinishRate, row.want.FinishRate}, "ArrivalRate": {got.ArrivalRate, row.want.ArrivalRate}, "TrendRate": {got.TrendRate, row.want.TrendRate},
			"LatestRate": {got.LatestRate, row.want.LatestRate}, "BusySeconds": {got.BusySeconds, row.want.BusySeconds}, "BusyFinished": {got.BusyFinished, row.want.BusyFinished},
		} {
			require.True(t, math.Abs(values[0]-values[1]) <= 1e-9, "%s: %s is %f, want %f", title, name, values[0], values[1])
		}
	}
	for finished, want := range map[float64]time.Duration{4.9: 0, 5: 2 * time.Second} {
		got := (&Rates{BusySeconds: 2 * finished, BusyFinished: finished}).serviceTime()
		require.True(t, got == want, "after %g messages, the service time is %s, want %s", finished, got, want)
	}
}

func TestRecommendationsOfAWindowAreKeptInSpans(t *testing.T) {
	in := Observation{Settings: Settings{ScaleUp: ScaleRule{Window: 20 * time.Second}, ScaleDown: ScaleRule{Window: 80 * time.Second}}}
	var got Recommendations
	for second := range 200 {
		in.Now = testTime.Add(time.Duration(second) * time.Second)
		got.addRecommendation(in, int32(second))
	}
	var want Recommendations
	for second := 110; second < 200; second += 10 { // the first overlaps the window
		want = append(want, RecommendationSpan{testTime.Add(time.Duration(second) * time.Second), int32(second), int32(second + 9)})
	}
	require.Equal(t, want, got)
}

func TestValuesThatCannotBeDecideLikeTheirBounds(t *testing.T) {
	stats := func(change func(*BacklogStats)) *BacklogStats {
		s := &BacklogStats{Backlog: 50, Running: 5, Finished: new(int64(100))}
		change(s)
		return s
	}
	for title, rows := range map[string][2]Observation{
		"the age of messages":  {observationOf(1, stats(func(s *BacklogStats) { s.OldestAge = -time.Hour }), Memory{}), observationOf(1, stats(func(*BacklogStats) {}), Memory{})},
		"the service time":     {observationOf(1, stats(func(s *BacklogStats) { s.ServiceTime = -time.Hour }), Memory{}), observationOf(1, stats(func(*BacklogStats) {}), Memory{})},
		"too few workers":      {observationOf(-5, stats(func(*BacklogStats) {}), Memory{}), observationOf(0, stats(func(*BacklogStats) {}), Memory{})},
		"more than one counts": {observationOf(maxReplicas+5, nil, Memory{}), observationOf(maxReplicas, nil, Memory{})},
	} {
		if diff := cmp.Diff(Decide(rows[1]), Decide(rows[0])); diff != "" {
			t.Errorf("%s: it differs (-bound, +value):\n%s", title, diff)
		}
	}
}

func TestAChangeEndsTheRampOfTheOtherDirection(t *testing.T) {
	ramp := ScaleRamp{1, 1, ago(time.Second)}
	for title, row := range map[string]struct {
		replicas         int32
		running          int64
		keepsUp, keepsDn bool
	}{
		"more workers": {2, 90, true, false}, "fewer workers": {9, 1, false, true}, "as many workers": {1, 8, true, true},
	} {
		memory := memoryWithRate(0)
		memory.ScaleUp, memory.ScaleDown = ramp, ramp
		got := Decide(observationOf(row.replicas, &BacklogStats{Running: row.running}, memory)).Memory
		if (got.ScaleUp == ScaleRamp{}) == row.keepsUp || (got.ScaleDown == ScaleRamp{}) == row.keepsDn {
			t.Errorf("%s: the ramps are %+v and %+v", title, got.ScaleUp, got.ScaleDown)
		}
	}
}

func TestARateLimitLeavesMessagesForFewWorkers(t *testing.T) {
	for rate, want := range map[float64]int32{0: 20, 0.1: 1, 10: 3, 40: 10, 200: 20} { // of ten handlers, each with two seconds for a message
		n := replicaTarget{value: 20, upper: 20}
		n.applyLimits(observationOf(5, &BacklogStats{Backlog: 999}, Memory{}, func(p *Settings) { p.RatePerSecond = rate }), &Memory{Rates: Rates{ReportedServiceSeconds: 2}})
		require.True(t, n.value == want, "at most %g messages per second: %d workers, want %d", rate, n.value, want)
	}
}

func TestStatsAreMissingSinceTheFirstDecisionWithoutThem(t *testing.T) {
	for since, want := range map[time.Time]time.Time{{}: testTime, ago(time.Hour): ago(time.Hour), testTime.Add(time.Hour): testTime} {
		got := Decide(observationOf(3, nil, Memory{MissingSince: since})).Memory.MissingSince
		require.True(t, got.Equal(want), "known since %s: %s, want %s", since, got, want)
	}
}
