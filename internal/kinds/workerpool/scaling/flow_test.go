package scaling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/test/require"
)

// fluidQueue simulates a queue with a continuous flow of messages, without randomness.
type fluidQueue struct {
	policy Settings
	// rate of arrivals per second, and service time of a message in seconds.
	rate, service float64
	// limit of the throughput of all workers together, per second; 0 means unlimited.
	limit float64

	now                                  time.Time
	memory                               Memory
	replicas, ready                      int32
	readyAt                              time.Time
	waiting, inFlight, arrived, finished float64
	changes                              int
	last                                 Decision
}

// runFor simulates a duration with a decision every two seconds.
func (f *fluidQueue) runFor(d time.Duration) {
	const start = 8 * time.Second
	for end := f.now.Add(d); f.now.Before(end); {
		if !f.now.Before(f.readyAt) {
			f.ready = f.replicas
		}
		f.last = Decide(Observation{
			Now: f.now, Settings: f.policy, Replicas: f.replicas, Ready: f.ready, PodStart: start, Memory: f.memory,
			Stats: &BacklogStats{
				Backlog: int64(f.waiting), Running: int64(f.inFlight + 0.5),
				Arrived: new(int64(f.arrived)), Finished: new(int64(f.finished)),
			},
		})
		f.memory = f.last.Memory
		switch {
		case f.last.Applied > f.replicas:
			f.readyAt = f.now.Add(start)
			f.changes++
		case f.last.Applied < f.replicas:
			f.changes++
		}
		f.replicas, f.ready = f.last.Applied, min(f.ready, f.last.Applied)
		f.advanceQueue(DecisionInterval.Seconds())
		f.now = f.now.Add(DecisionInterval)
	}
}

// advanceQueue simulates arrivals and processing for some seconds.
func (f *fluidQueue) advanceQueue(seconds float64) {
	const step = 0.02
	for ; seconds > 0; seconds -= step {
		started := min(f.waiting, max(0, float64(f.ready*f.policy.Concurrency)-f.inFlight))
		finished := f.inFlight / f.service * step
		if f.limit > 0 {
			finished = min(finished, f.limit*step)
		}
		f.waiting += f.rate*step - started
		f.inFlight += started - finished
		f.arrived += f.rate * step
		f.finished += finished
	}
}

// Under any constant load the number of workers becomes stable, and no backlog remains.
func TestConstantLoadLeadsToAStableNumberOfWorkers(t *testing.T) {
	for s := range *propertyRuns / 3 {
		r := rand.New(rand.NewPCG(s, 1))
		f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 0.5 + 60*r.Float64(), service: 0.2 + 5*r.Float64()}
		f.policy.Concurrency, f.policy.MaxReplicas = 1+int32(r.IntN(20)), 1000
		f.runFor(10 * time.Minute)
		settled := f.changes
		f.runFor(30 * time.Minute)
		require.True(t, f.changes == settled, "seed %d: %d changes after it became stable: %+v", s, f.changes-settled, f)
		require.True(t, f.waiting <= 1+f.rate*DecisionInterval.Seconds(), "seed %d: %.0f messages wait: %+v", s, f.waiting, f)
	}
}

// A dependency of the workers handles 20 messages per second, and 40 arrive: more workers would only wait longer.
func TestScaleUpStopsWhenThroughputIsSaturated(t *testing.T) {
	f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 15, service: 1, limit: 20}
	f.policy.MaxReplicas = 1000
	f.runFor(5 * time.Minute)
	f.rate = 40
	f.runFor(30 * time.Minute)
	require.True(t, f.replicas <= 100, "%d workers, although 3 reach the maximum throughput", f.replicas)
	require.Equal(t, ReasonThroughputSaturated, f.last.Reason)
	// When the limit is lifted, the pool scales up again.
	f.limit = 1000
	f.runFor(15 * time.Minute)
	require.True(t, f.waiting <= 100, "%.0f messages are still waiting", f.waiting)
}

// Without steps, the pool has at most one worker more or fewer than running and waiting messages justified in the last 15 s,
// with the number of running ones and at a utilization of 80 %. A decision sees these messages a moment later.
func TestTheNumberOfWorkersFollowsPatternsOfLoad(t *testing.T) {
	for name, rates := range map[string][]float64{
		"bursts": {40, 0, 0, 0, 60, 0, 0, 0},
		"sine":   {4, 8, 15, 22, 26, 22, 15, 8, 4, 2},
		"steps":  {5, 5, 5, 20, 20, 20, 10, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fluidQueue{policy: defaultSettings(), now: testTime, service: 1}
			f.policy.MaxReplicas, f.policy.IdleAfter = 6, 5*time.Second
			f.policy.ScaleDown = ScaleRule{Window: 5 * time.Second, Step: new(intstr.FromString("100%"))}
			var samples []fluidQueue
			for _, f.rate = range slices.Concat(rates, make([]float64, 5)) {
				for range 3 {
					f.runFor(DecisionInterval)
					samples = append(samples, *f)
				}
			}
			for i := range samples {
				least, most := f.policy.MaxReplicas, int32(1)
				for _, near := range samples[max(0, i-int(15*time.Second/DecisionInterval)):min(len(samples), i+2)] {
					least = min(least, int32(math.Ceil(near.inFlight/10)))
					most = max(most, min(f.policy.MaxReplicas, int32(math.Ceil((near.inFlight+near.waiting)/8))))
				}
				got := samples[i].replicas
				require.True(t, got >= least-1 && got <= most+1, "after %s: %d workers, want %d to %d", samples[i].now.Sub(testTime), got, least, most)
			}
			require.True(t, f.replicas == 0, "%d workers without messages", f.replicas)
		})
	}
}
