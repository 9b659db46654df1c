package scaling

import (
	"math/rand/v2"
	"testing"
	"time"
)

// fluidQueue is a queue in which messages flow as water does: none comes by chance, and none is
// whole.
type fluidQueue struct {
	policy Settings
	// rate at which messages come, and service, how long one takes, in seconds.
	rate, service float64
	// limit of what all workers together can finish in a second; 0: none.
	limit float64

	now                                  time.Time
	memory                               Memory
	replicas, ready                      int32
	readyAt                              time.Time
	waiting, inFlight, arrived, finished float64
	changes                              int
	last                                 Decision
}

// runFor lets time pass, and has a decision made and kept to every two seconds.
func (f *fluidQueue) runFor(d time.Duration) {
	const start = 8 * time.Second
	for end := f.now.Add(d); f.now.Before(end); {
		if !f.now.Before(f.readyAt) {
			f.ready = f.replicas
		}
		f.last = Decide(Observation{
			Now: f.now, Settings: f.policy, Replicas: f.replicas, Ready: f.ready, PodStart: start, Memory: f.memory,
			Stats: &BacklogStats{
				Backlog: int64(f.waiting), InFlight: int64(f.inFlight + 0.5),
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

// advanceQueue lets messages flow for so many seconds.
func (f *fluidQueue) advanceQueue(seconds float64) {
	const step = 0.02
	for ; seconds > 0; seconds -= step {
		begun := min(f.waiting, max(0, float64(f.ready*f.policy.Concurrency)-f.inFlight))
		ended := f.inFlight / f.service * step
		if f.limit > 0 {
			ended = min(ended, f.limit*step)
		}
		f.waiting += f.rate*step - begun
		f.inFlight += begun - ended
		f.arrived += f.rate * step
		f.finished += ended
	}
}

// Under a constant load, of whatever rate and duration, the number settles and stays, and
// no message waits for long.
func TestConstantLoadSettles(t *testing.T) {
	for s := range *propertyRuns / 3 {
		r := rand.New(rand.NewPCG(s, 1))
		f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 0.5 + 60*r.Float64(), service: 0.2 + 5*r.Float64()}
		f.policy.Concurrency, f.policy.MaxReplicas = 1+int32(r.IntN(20)), 1000
		f.policy.Utilization = 0.5 + 0.45*r.Float64()
		f.runFor(10 * time.Minute)
		settled := f.changes
		f.runFor(30 * time.Minute)
		if f.changes != settled {
			t.Errorf("seed %d: %d changes after it had settled: %+v", s, f.changes-settled, f)
		}
		if f.waiting > 1+f.rate*DecisionInterval.Seconds() {
			t.Errorf("seed %d: %.0f messages wait: %+v", s, f.waiting, f)
		}
	}
}

// What all workers wait for can do 20 messages a second, and 40 come: more and more
// workers would only wait longer.
func TestGrowthStopsWhereItIsOfNoUse(t *testing.T) {
	f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 15, service: 1, limit: 20}
	f.policy.MaxReplicas = 1000
	f.runFor(5 * time.Minute)
	f.rate = 40
	f.runFor(30 * time.Minute)
	if f.replicas > 100 {
		t.Errorf("there are %d workers, of which 3 could do all that can be done", f.replicas)
	}
	if f.last.Reason != ReasonThroughputSaturated {
		t.Errorf("the reason is %s, want %s: %s", f.last.Reason, ReasonThroughputSaturated, decisionMessage(Observation{Settings: f.policy}, f.last))
	}
	// When it can do more again, the pool goes on by itself.
	f.limit = 1000
	f.runFor(15 * time.Minute)
	if f.waiting > 100 {
		t.Errorf("%.0f messages still wait", f.waiting)
	}
}

func TestAnIdlePoolGoesToZeroOnTime(t *testing.T) {
	f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 30, service: 1}
	f.runFor(5 * time.Minute)
	f.rate, f.waiting, f.inFlight = 0, 0, 0
	ended := f.now
	for f.replicas > 0 && f.now.Sub(ended) < time.Hour {
		f.runFor(DecisionInterval)
	}
	if took := f.now.Sub(ended) - DecisionInterval; took != f.policy.IdleAfter {
		t.Errorf("it took %s, want %s", took, f.policy.IdleAfter)
	}
}
