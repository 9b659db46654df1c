package scaling

import (
	"math"
	"time"
)

const (
	// growTolerance and shrinkTolerance are the parts by which another number of workers
	// must be greater, or less, to be worth a change: what arrives is never quite even.
	growTolerance   = 0.22
	shrinkTolerance = 0.2
	// startingTolerance is the same while workers that were asked for are not there yet:
	// more are asked for only when it is clear that twice as many are needed.
	startingTolerance = 1
)

// up grows to the least that was wanted in the window, by no more than the step.
func (n *number) up(in Input, memory *Memory) {
	if in.Replicas > 0 && in.Replicas >= least(in.Policy) && float64(n.value) < worthwhile(in) {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	rule := in.Policy.Up
	if rule.Window > 0 && in.Replicas > 0 {
		n.atMost(max(in.Replicas, memory.Wants.least(in.Now, rule.Window)), ReasonWindow)
	}
	if n.value > in.Replicas {
		n.atMost(in.Replicas+memory.Up.room(in, rule), ReasonStep)
	}
	n.atLeast(least(in.Policy), ReasonMinReplicas)
}

// worthwhile is from which number on growth is worth it. At the policy's bound there is
// nothing to be gained by waiting.
func worthwhile(in Input) float64 {
	part := 1.0 + growTolerance
	if in.Ready < in.Replicas {
		part = 1 + startingTolerance
	}
	return min(float64(in.Replicas)*part, float64(most(in.Policy)))
}

// down shrinks to the most that was wanted in the window, by no more than the step, and
// to no fewer than are busy, unless a bound is lower: then busy ones are drained. A pool
// that has been idle for long has no need of another window.
func (n *number) down(in Input, memory *Memory) {
	rule := in.Policy.Down
	if n.reason != ReasonIdle {
		n.atLeast(memory.Wants.keeps(in, rule.Window), ReasonWindow)
	}
	n.atLeast(min(busy(in), in.Replicas, most(in.Policy)), ReasonBusy)
	if n.value == in.Replicas {
		return
	}
	if float64(n.value) > float64(in.Replicas)*(1-shrinkTolerance) && in.Replicas <= most(in.Policy) {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	n.atLeast(in.Replicas-memory.Down.room(in, rule), ReasonStep)
}

// Ramp is growth or shrinking that takes more than one decision.
type Ramp struct {
	// From is how many workers there were when it began.
	From int32
	// Last is when the number was last changed.
	Last time.Time
}

// room is by how much the number may change now: by a step, once in a period. A change
// soon after another belongs to the same ramp.
func (r *Ramp) room(in Input, rule Rule) int32 {
	since := in.Now.Sub(r.Last)
	switch {
	case r.Last.IsZero() || since < 0 || since > 2*rule.Period:
		r.From = in.Replicas
	case since < rule.Period:
		return 0
	}
	r.Last = in.Now
	return rule.Step.of(r.From)
}

// of is how many workers the step is.
func (s Step) of(from int32) int32 {
	switch {
	case s.Count > 0:
		return s.Count
	case s.Percent > 0:
		return max(1, int32(math.Ceil(float64(from)*float64(s.Percent)/100)))
	default:
		return mostReplicas
	}
}
