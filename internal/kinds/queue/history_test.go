package queue

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// statsAt returns stats that were read so many seconds after noon.
func statsAt(second float64, arrivals uint64, ready, inFlight int64, headAge time.Duration) *broker.QueueStats {
	f := &broker.QueueStats{
		MeasuredTime: noon.Add(time.Duration(second * float64(time.Second))), TotalArrivals: arrivals, Ready: ready, InFlight: inFlight,
	}
	if ready > 0 {
		f.OldestReadyTime = f.MeasuredTime.Add(-headAge)
	}
	return f
}

func TestASteadyRateIsKnownFromTheSecondReadOn(t *testing.T) {
	h := StatsHistory{}.add(statsAt(0, 100, 0, 0, 0))
	require.True(t, h.Rates.Seconds == 0, "one read gives a rate: %+v", h.Rates)
	for i := 1; i <= 20; i++ {
		h = h.add(statsAt(float64(5*i), 100+uint64(50*i), 0, int64(i%3), 0))
		got := h.Rates.arrivalRate()
		require.True(t, math.Abs(got-10) <= 0.01, "after read %d the rate is %f, want 10", i, got)
	}
	got := h.Rates.serviceRate()
	require.True(t, math.Abs(got-10) <= 0.5, "the service rate is %f, want 10", got)
}

func TestARateFollowsAChangeWithItsTimeConstant(t *testing.T) {
	h, second, arrivals := StatsHistory{}.add(statsAt(0, 0, 0, 0, 0)), 0.0, uint64(0)
	for range 60 { // 10 messages arrive each second, of which 3 wait, and 2 are delayed
		second, arrivals = second+5, arrivals+50
		stats := statsAt(second, arrivals, int64(arrivals)*3/10, 0, time.Second)
		stats.Delayed = int64(arrivals) * 2 / 10
		h = h.add(stats)
	}
	got := h.Rates.serviceRate()
	require.True(t, math.Abs(got-5) <= 0.1, "the service rate is %f, want 5", got)
	for range 6 {
		second += 5
		h = h.add(statsAt(second, arrivals, 0, 0, 0))
	}
	got = h.Rates.arrivalRate()
	require.True(t, math.Abs(got-10/math.E) <= 0.1, "30 s after the last message, the rate is %f", got)
}

func TestRatesAtTheirLimits(t *testing.T) {
	for arrived, want := range map[float64]float64{0.99: 0, 1: 0.05, 2: 0.1} {
		got := (Rates{Seconds: 20, Arrived: arrived}).arrivalRate()
		require.True(t, got == want, "%g messages in 20 s: %g each second, want %g", arrived, got, want)
	}
	limit := &v1alpha1.RateLimit{Limit: 600, Per: durationOf(time.Minute)}
	for arrived, want := range map[float64]bool{300: false, 315: false, 316: true} { // 5 % above the limit are no trend
		_, _, got := rateBelowArrivals(limit, StatsHistory{Last: statsAt(0, 0, 9, 0, 0), Rates: Rates{Seconds: 30, Arrived: arrived}})
		require.True(t, got == want, "%g messages in 30 s: %t, want %t", arrived, got, want)
	}
}

func TestACounterThatDecreasesResetsTheHistory(t *testing.T) {
	h := StatsHistory{}.add(statsAt(0, 1000, 0, 0, 0)).add(statsAt(5, 2000, 7, 0, time.Second)).add(statsAt(10, 3, 0, 0, 0))
	require.True(t, h.Rates.Seconds == 0 && len(h.Latency) == 0 && h.Last.TotalArrivals == 3, "the history is %+v", h)
}

func TestLatencyOfDeliveredMessages(t *testing.T) {
	type reads = []*broker.QueueStats
	const minute, second = time.Minute, time.Second
	delayed := statsAt(5, 150, 0, 0, 0)
	delayed.Delayed = 50
	for name, row := range map[string]struct {
		reads reads
		p95   time.Duration // negative: unknown
	}{
		"messages without waiting time":           {reads{statsAt(0, 0, 0, 0, 0), statsAt(5, 50, 0, 2, 0)}, 0},
		"a backlog of constant age":               {reads{statsAt(0, 100, 100, 0, 20*second), statsAt(5, 150, 100, 0, 20*second)}, 20 * second},
		"a processed backlog":                     {reads{statsAt(0, 100, 100, 0, 40*second), statsAt(10, 100, 0, 0, 0)}, 35 * second},
		"messages that workers took too long ago": {reads{statsAt(0, 100, 100, 0, 40*second), statsAt(10, 100, 0, 0, 0), statsAt(310, 100, 0, 0, 0)}, -1},
		"delayed messages":                        {reads{statsAt(0, 100, 0, 0, 0), delayed}, -1},
		"few with waiting time among many":        {reads{statsAt(0, 1000, 10, 0, minute), statsAt(5, 1000, 0, 0, 0), statsAt(10, 1990, 0, 0, 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := StatsHistory{}
			for _, f := range row.reads {
				h = h.add(f)
			}
			got := h.Latency.waitP95()
			require.True(t, (got == nil) == (row.p95 < 0), "latency %v, want %s", got, row.p95)
			require.True(t, got == nil || got.Duration == row.p95, "p95 %v, want %s", got, row.p95)
		})
	}
}

// The test simulates a first-in-first-out queue in steps of 0.1 s and reads its stats every 5 s.
func TestLatencyEstimateIsCloseToARealQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		var arrivals []float64
		var waited LatencySamples
		h, arrived := StatsHistory{}, uint64(0)
		for step := range 1200 {
			now := float64(step) / 10
			burst := 1 + step/400%2 // the load varies
			for range random.IntN(4 * burst) {
				arrivals, arrived = append(arrivals, now), arrived+1
			}
			for range min(len(arrivals), random.IntN(6)) {
				waited = append(waited, LatencySample{Wait: time.Duration((now - arrivals[0]) * float64(time.Second)), Weight: 1})
				arrivals = arrivals[1:]
			}
			if step%50 == 0 {
				age := time.Duration(0)
				if len(arrivals) > 0 {
					age = time.Duration((now - arrivals[0]) * float64(time.Second))
				}
				h = h.add(statsAt(now, arrived, int64(len(arrivals)), 0, age))
			}
		}
		slices.SortFunc(waited, func(a, b LatencySample) int { return cmp.Compare(a.Wait, b.Wait) })
		got, want := h.Latency.waitP95().Duration, waited[int(math.Ceil(0.95*float64(len(waited))))-1].Wait
		difference := (got - want).Abs()
		require.True(t, difference <= 2*time.Second || difference <= want/4, "round %d: p95 is estimated as %s and is %s", round, got, want)
	}
}

func TestAnEmptyQueueIsReadLessAndLessOften(t *testing.T) {
	h := StatsHistory{}.add(statsAt(0, 5, 2, 0, time.Second))
	for _, counts := range [][2]int64{{2, 0}, {0, 2}, {1, 1}} {
		busy := h.add(statsAt(1, 5, 0, 0, 0)).add(statsAt(60, 7, counts[0], counts[1], time.Second))
		got := busy.interval()
		require.True(t, got == busyInterval && !busy.isIdle(), "a queue with %v messages is read after %s", counts, got)
		require.Equal(t, 20*time.Second, busy.add(statsAt(70, 7, 0, 0, 0)).add(statsAt(90, 7, 0, 0, 0)).interval())
	}
	for second, want := range map[float64]time.Duration{
		5: 5 * time.Second, 17: 12 * time.Second, 300: time.Minute, 3600: time.Minute,
	} {
		empty := h.add(statsAt(5, 5, 0, 0, 0)).add(statsAt(second, 5, 0, 0, 0))
		got := empty.interval()
		require.True(t, got == want && empty.isIdle(), "after %f s: %s, want %s", second, got, want)
	}
	delayed := statsAt(9, 6, 0, 0, 0)
	delayed.Delayed = 1
	require.Equal(t, delayedInterval, h.add(delayed).interval())
}

func TestADelayedMessageArrivesWhenItIsDue(t *testing.T) {
	before := &broker.QueueStats{MeasuredTime: noon, TotalArrivals: 5, Delayed: 3, Postponed: 3}
	after := &broker.QueueStats{MeasuredTime: noon.Add(10 * time.Second), TotalArrivals: 8, Ready: 1, InFlight: 1}
	h := StatsHistory{}.add(before).add(after)
	arrived, finished := h.Rates.Arrived, h.Rates.Finished
	require.True(t, arrived > 0 && math.Abs(arrived-3*finished) <= 0.001, "%g messages arrived and %g were finished, want three and one", arrived, finished)
	require.True(t, len(h.Latency) != 0 && h.Latency[0].Weight == 2.0/samplesPerRead, "%+v, want two messages that workers took", h.Latency)
}
