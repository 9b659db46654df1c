package scaling

import (
	"math"
	"time"
)

// Decide says how many workers there shall be.
func Decide(in Input) Decision {
	in = sane(in)
	d := decide(in)
	d.Intended = d.Applied
	switch {
	case in.Now.Before(in.Policy.PausedUntil):
		d.Applied, d.Reason = in.Replicas, ReasonPaused
	case in.Policy.DryRun:
		d.Applied, d.Reason = in.Replicas, ReasonDryRun
	}
	return d
}

func decide(in Input) Decision {
	d := Decision{Want: in.Replicas, Memory: in.Memory.clone()}
	n := number{in.Replicas, ReasonDemand}
	if in.Figures == nil {
		d.Memory.forgetCounters(in.Now)
		n = withoutFigures(in)
		d.Applied, d.Reason = n.value, n.reason
		d.fill()
		return d
	}
	d.Memory.MissingSince = time.Time{}
	d.Memory.learn(in)
	d.fill()

	n.value = demand(in, &d.Memory)
	d.Want = n.value
	n.capByUse(in, d.ServiceTime)
	n.idle(in, &d.Memory)
	n.bound(in)
	d.Memory.Wants.add(in.Now, n.value, longest(in.Policy))
	n.freeze(in, in.Memory.Saturation, &d.Memory.Rates)
	switch {
	case n.value > in.Replicas:
		d.Memory.Down = Ramp{}
		n.up(in, &d.Memory)
	case n.value < in.Replicas:
		d.Memory.Up = Ramp{}
		n.down(in, &d.Memory)
	default:
		d.Memory.Up, d.Memory.Down = Ramp{}, Ramp{}
	}
	d.Memory.Saturation.learn(in, &d.Memory.Rates, n.value > in.Replicas)
	d.Applied, d.Reason = n.value, n.reason
	return d
}

// fill tells what has been learned.
func (d *Decision) fill() {
	d.ArrivalRate = d.Memory.Rates.Arriving
	d.ServiceTime = d.Memory.Rates.serviceTime()
}

// number of workers on its way through the rules.
type number struct {
	value  int32
	reason Reason
}

// atMost lowers the number to a bound.
func (n *number) atMost(bound int32, reason Reason) {
	if n.value > bound {
		n.value, n.reason = bound, reason
	}
}

// atLeast raises the number to a bound.
func (n *number) atLeast(bound int32, reason Reason) {
	if n.value < bound {
		n.value, n.reason = bound, reason
	}
}

// What no number exceeds, so that none overflows.
const (
	mostReplicas = 1_000_000
	mostMessages = 1_000_000_000_000
)

// sane is the input without figures that cannot be: user input and brokers are not trusted.
func sane(in Input) Input {
	p := &in.Policy
	p.Concurrency = max(p.Concurrency, 1)
	p.WaitP95 = max(p.WaitP95, time.Second)
	if !(p.Utilization > 0.01 && p.Utilization <= 1) {
		p.Utilization = 1
	}
	p.Max = min(max(p.Max, 0), mostReplicas)
	p.Min = min(max(p.Min, 0), mostReplicas)
	in.Replicas = min(max(in.Replicas, 0), mostReplicas)
	in.Ready = min(max(in.Ready, 0), in.Replicas)
	in.PodStart = max(in.PodStart, 0)
	if in.Figures != nil {
		f := *in.Figures
		f.Backlog, f.InFlight = min(max(f.Backlog, 0), mostMessages), min(max(f.InFlight, 0), mostMessages)
		f.OldestAge, f.ServiceTime = max(f.OldestAge, 0), max(f.ServiceTime, 0)
		in.Figures = &f
	}
	return in
}

// replicas is a number of workers for a computed one, rounded up.
func replicas(n float64) int32 {
	if math.IsNaN(n) || n <= 0 {
		return 0
	}
	// What is computed from measured figures is not exact: 3.0000001 are 3.
	return int32(min(math.Ceil(n-1e-6), mostReplicas))
}
