package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	const exact = 0.01
	for title, test := range map[string]struct {
		in                           Observation
		arriving, finishing, service float64
	}{
		"the first measurement gives no rates": {
			in: observationOf(1, &BacklogStats{Backlog: 10, Arrived: new(int64(500)), Finished: new(int64(490))}, Memory{}),
		},
		"after a long gap only the new rate counts": {
			in: observationOf(1, &BacklogStats{Arrived: new(int64(7300)), Finished: new(int64(100))},
				memoryMeasured(10*time.Minute, Rates{Arrived: new(int64(100)), Finished: new(int64(100)), ArrivalRate: 10})),
			arriving: 12,
		},
		"a new counter gives no rate": {
			in: observationOf(1, &BacklogStats{Arrived: new(int64(100)), Finished: new(int64(100))}, memoryMeasured(2*time.Second, Rates{})),
		},
		"arrivals are derived from outstanding and finished messages if the broker does not count them": {
			in: observationOf(1, &BacklogStats{Backlog: 30, Finished: new(int64(120))},
				memoryMeasured(10*time.Minute, Rates{Outstanding: 30, Finished: new(int64(100)), ArrivalRate: 10})),
			arriving: 20.0 / 600, finishing: 20.0 / 600,
		},
		"the service time that workers report takes precedence": {
			in: observationOf(1, &BacklogStats{ServiceTime: 3 * time.Second}, memoryWithRate(0)), service: 3,
		},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(test.in)
			for rate, got := range map[string][2]float64{
				"arriving":  {d.Memory.Rates.ArrivalRate, test.arriving},
				"finishing": {d.Memory.Rates.FinishRate, test.finishing},
				"service":   {d.Memory.Rates.serviceTime().Seconds(), test.service},
			} {
				require.True(t, math.Abs(got[0]-got[1]) <= exact, "%s is %.3f, want %.3f", rate, got[0], got[1])
			}
		})
	}
}

func TestCountersAreMeasuredAgainAfterStatsWereUnavailable(t *testing.T) {
	memory := memoryMeasured(2*time.Second, Rates{Arrived: new(int64(100)), ArrivalRate: 10})
	memory.IdleSince = testTime.Add(-time.Hour)
	lost := Decide(observationOf(1, nil, memory))
	if !lost.Memory.MissingSince.Equal(testTime) || !lost.Memory.IdleSince.IsZero() {
		t.Errorf("missing since %s, idle since %s", lost.Memory.MissingSince, lost.Memory.IdleSince)
	}
	back := observationOf(1, &BacklogStats{Arrived: new(int64(90000))}, lost.Memory)
	back.Now = testTime.Add(time.Second)
	found := Decide(back)
	if found.Memory.Rates.ArrivalRate != 10 || !found.Memory.MissingSince.IsZero() {
		t.Errorf("%.1f messages arrive a second, want 10; missing since %s", found.Memory.Rates.ArrivalRate, found.Memory.MissingSince)
	}
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
		t.Run(title, func(t *testing.T) {
			got := test.rates.forecastRate(10 * time.Second)
			require.True(t, math.Abs(got-test.want) <= 1e-9, "%.2f in ten seconds, want %.2f", got, test.want)
		})
	}
}

func TestAfterARestartThePoolScalesUpAtOnceAndDownOnceRatesHaveSettled(t *testing.T) {
	// 60 messages per second of one second keep 6 of 8 workers busy, which the target utilization calls for.
	restarted := func() *fluidQueue {
		f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 60, service: 1}
		f.runFor(5 * time.Minute)
		f.memory = RestoreMemory(&v1alpha1.WorkerPoolStatus{})
		return f
	}
	t.Run("under the same load, the number does not change", func(t *testing.T) {
		f := restarted()
		before := f.changes
		f.runFor(5 * time.Minute)
		require.True(t, f.changes == before, "%d changes: %s", f.changes-before, Summarize(Observation{Settings: f.policy}, f.last))
	})
	t.Run("under more load, it grows at once", func(t *testing.T) {
		f := restarted()
		before := f.replicas
		f.waiting = 5000
		f.runFor(DecisionInterval)
		require.True(t, f.replicas > before, "%d workers, before %d", f.replicas, before)
	})
	t.Run("under less load, it shrinks when the rates have settled", func(t *testing.T) {
		f := restarted()
		before := f.replicas
		f.rate = 10
		f.runFor(settledRates)
		require.True(t, f.replicas == before, "%d workers after %s, before %d", f.replicas, settledRates, before)
		f.runFor(DecisionInterval)
		require.True(t, f.replicas < before, "%d workers, before %d", f.replicas, before)
	})
}

func TestSinceWhenAPoolIsIdleOrHasNoMetricsIsRestored(t *testing.T) {
	since := metav1.NewTime(testTime)
	want := Memory{IdleSince: testTime, MissingSince: testTime}
	if got := RestoreMemory(&v1alpha1.WorkerPoolStatus{IdleSince: &since, ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, LastTransitionTime: since},
	}}}); !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}
