package scaling

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// memoryMeasured returns a memory of counters that were read some time ago.
func memoryMeasured(ago time.Duration, r Rates) Memory {
	r.MeasuredAt = testTime.Add(-ago)
	return Memory{Rates: r}
}

func TestRatesAreMeasuredFromCounters(t *testing.T) {
	hundred := new(int64(100))
	beforeAGap := func(r Rates) Memory {
		r.Finished, r.ArrivalRate = hundred, 10
		return memoryMeasured(10*time.Minute, r)
	}
	for title, test := range map[string]struct {
		stats  BacklogStats
		memory Memory
		want   [3]float64 // arriving and finishing messages per second, and the service time
	}{
		"the first measurement gives no rates":         {BacklogStats{Backlog: 10, Arrived: new(int64(500)), Finished: new(int64(490))}, Memory{}, [3]float64{}},
		"after a long gap only the new rate counts":    {BacklogStats{Arrived: new(int64(7300)), Finished: hundred}, beforeAGap(Rates{Arrived: hundred}), [3]float64{12, 0, 0}},
		"a new counter gives no rate":                  {BacklogStats{Arrived: hundred, Finished: hundred}, memoryMeasured(2*time.Second, Rates{}), [3]float64{}},
		"arrivals that are not counted are derived":    {BacklogStats{Backlog: 30, Finished: new(int64(120))}, beforeAGap(Rates{Outstanding: 30}), [3]float64{20.0 / 600, 20.0 / 600, 0}},
		"the service time that workers report is used": {BacklogStats{ServiceTime: 3 * time.Second}, memoryWithRate(0), [3]float64{0, 0, 3}},
	} {
		rates := Decide(observationOf(1, &test.stats, test.memory)).Memory.Rates
		for i, got := range [3]float64{rates.ArrivalRate, rates.FinishRate, rates.serviceTime().Seconds()} {
			require.True(t, math.Abs(got-test.want[i]) <= 0.01, "%s: value %d is %.3f, want %v", title, i, got, test.want)
		}
	}
}

func TestCountersAreMeasuredAgainAfterStatsWereUnavailable(t *testing.T) {
	memory := memoryMeasured(2*time.Second, Rates{Arrived: new(int64(100)), ArrivalRate: 10})
	memory.IdleSince = testTime.Add(-time.Hour)
	lost := Decide(observationOf(1, nil, memory))
	isMissing := lost.Memory.MissingSince.Equal(testTime) && lost.Memory.IdleSince.IsZero()
	require.True(t, isMissing, "missing since %s, idle since %s", lost.Memory.MissingSince, lost.Memory.IdleSince)
	back := observationOf(1, &BacklogStats{Arrived: new(int64(90000))}, lost.Memory)
	back.Now = testTime.Add(time.Second)
	found := Decide(back)
	require.Equal(t, 10, found.Memory.Rates.ArrivalRate)
	require.True(t, found.Memory.MissingSince.IsZero(), "missing since %s", found.Memory.MissingSince)
}

func TestArrivalRateIsForecast(t *testing.T) {
	for title, test := range map[string]struct {
		rates Rates
		want  float64
	}{
		"a constant rate":              {Rates{ArrivalRate: 40, TrendRate: 40}, 40},
		"a growing rate":               {Rates{ArrivalRate: 40, TrendRate: 37}, 42},
		"a sudden increase is limited": {Rates{ArrivalRate: 40, TrendRate: 0}, 50},
		"a decrease is not forecast":   {Rates{ArrivalRate: 40, TrendRate: 80}, 40},
	} {
		got := test.rates.forecastRate(10 * time.Second)
		require.True(t, math.Abs(got-test.want) <= 1e-9, "%s: %.2f in ten seconds, want %.2f", title, got, test.want)
	}
}

func TestAfterARestartThePoolScalesUpAtOnceAndDownOnceRatesHaveSettled(t *testing.T) {
	// 60 messages per second of one second keep 6 of 8 workers busy, which the target utilization calls for.
	restarted := func() (f *fluidQueue, replicas int32) {
		f = &fluidQueue{policy: defaultSettings(), now: testTime, rate: 60, service: 1}
		f.runFor(5 * time.Minute)
		f.memory, f.changes = RestoreMemory(&v1alpha1.WorkerPoolStatus{}), 0
		return f, f.replicas
	}
	f, _ := restarted()
	f.runFor(5 * time.Minute)
	require.True(t, f.changes == 0, "%d changes under the same load: %s", f.changes, Summarize(Observation{Settings: f.policy}, f.last))

	f, before := restarted()
	f.waiting = 5000
	f.runFor(DecisionInterval)
	require.True(t, f.replicas > before, "%d workers at once under more load, before %d", f.replicas, before)

	f, before = restarted()
	f.rate = 10
	f.runFor(settledRates)
	require.True(t, f.replicas == before, "%d workers under less load, before %d, although rates have not settled", f.replicas, before)
	f.runFor(DecisionInterval)
	require.True(t, f.replicas < before, "%d workers when rates have settled, before %d", f.replicas, before)
}

func TestSinceWhenAPoolIsIdleOrHasNoMetricsIsRestored(t *testing.T) {
	since := metav1.NewTime(testTime)
	want := Memory{IdleSince: testTime, MissingSince: testTime}
	status := v1alpha1.WorkerPoolStatus{IdleSince: &since}
	status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, LastTransitionTime: since},
	}
	require.Equal(t, want, RestoreMemory(&status))
}
