package scaling

import (
	"math/rand/v2"
	"testing"
	"time"
)

// flow is a queue in which messages flow as water does: none comes by chance, and none is
// whole.
type flow struct {
	policy Policy
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

// run lets time pass, and has a decision made and kept to every two seconds.
func (f *flow) run(d time.Duration) {
	const start = 8 * time.Second
	for end := f.now.Add(d); f.now.Before(end); {
		if !f.now.Before(f.readyAt) {
			f.ready = f.replicas
		}
		f.last = Decide(Input{
			Now: f.now, Policy: f.policy, Replicas: f.replicas, Ready: f.ready, PodStart: start, Memory: f.memory,
			Figures: &Figures{
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
		f.flow(Interval.Seconds())
		f.now = f.now.Add(Interval)
	}
}

// flow lets messages flow for so many seconds.
func (f *flow) flow(seconds float64) {
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
	for s := range *runs / 3 {
		r := rand.New(rand.NewPCG(s, 1))
		f := &flow{policy: usual(), now: noon, rate: 0.5 + 60*r.Float64(), service: 0.2 + 5*r.Float64()}
		f.policy.Concurrency, f.policy.Max = 1+int32(r.IntN(20)), 1000
		f.policy.Utilization = 0.5 + 0.45*r.Float64()
		f.run(10 * time.Minute)
		settled := f.changes
		f.run(30 * time.Minute)
		if f.changes != settled {
			t.Errorf("seed %d: %d changes after it had settled: %+v", s, f.changes-settled, f)
		}
		if f.waiting > 1+f.rate*Interval.Seconds() {
			t.Errorf("seed %d: %.0f messages wait: %+v", s, f.waiting, f)
		}
	}
}

// What all workers wait for can do 20 messages a second, and 40 come: more and more
// workers would only wait longer.
func TestGrowthStopsWhereItIsOfNoUse(t *testing.T) {
	f := &flow{policy: usual(), now: noon, rate: 15, service: 1, limit: 20}
	f.policy.Max = 1000
	f.run(5 * time.Minute)
	f.rate = 40
	f.run(30 * time.Minute)
	if f.replicas > 100 {
		t.Errorf("there are %d workers, of which 3 could do all that can be done", f.replicas)
	}
	if f.last.Reason != ReasonSaturated {
		t.Errorf("the reason is %s, want %s: %s", f.last.Reason, ReasonSaturated, message(Input{Policy: f.policy}, f.last))
	}
	// When it can do more again, the pool goes on by itself.
	f.limit = 1000
	f.run(15 * time.Minute)
	if f.waiting > 100 {
		t.Errorf("%.0f messages still wait", f.waiting)
	}
}

func TestAnIdlePoolGoesToZeroOnTime(t *testing.T) {
	f := &flow{policy: usual(), now: noon, rate: 30, service: 1}
	f.run(5 * time.Minute)
	f.rate, f.waiting, f.inFlight = 0, 0, 0
	ended := f.now
	for f.replicas > 0 && f.now.Sub(ended) < time.Hour {
		f.run(Interval)
	}
	if took := f.now.Sub(ended) - Interval; took != f.policy.IdleAfter {
		t.Errorf("it took %s, want %s", took, f.policy.IdleAfter)
	}
}
