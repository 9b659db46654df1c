package scaling

import (
	"math"
	"time"
)

const (
	// scaleUpTolerance and shrinkTolerance are the parts by which another number of workers
	// must be greater, or less, to be worth a change: what arrives is never quite even.
	scaleUpTolerance   = 0.22
	scaleDownTolerance = 0.2
	// startingTolerance is the same while workers that were asked for are not there yet:
	// more are asked for only when it is clear that twice as many are needed.
	startingTolerance = 1
)

// scaleUp grows to the least that was wanted in the window, by no more than the step.
func (n *replicaTarget) scaleUp(in Observation, memory *Memory) {
	if in.Replicas > 0 && in.Replicas >= effectiveMin(in.Settings) && float64(n.value) < worthwhileReplicas(in) {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	rule := in.Settings.ScaleUp
	if rule.Window > 0 && in.Replicas > 0 {
		n.lowerTo(max(in.Replicas, memory.Recommendations.lowestSince(in.Now, rule.Window)), ReasonStabilizationWindow)
	}
	if n.value > in.Replicas {
		n.lowerTo(in.Replicas+memory.ScaleUp.allowedChange(in, rule), ReasonMaxStep)
	}
	n.raiseTo(effectiveMin(in.Settings), ReasonMinReplicas)
}

// worthwhileReplicas is from which number on growth is worth it. At the policy's bound there is
// nothing to be gained by waiting.
func worthwhileReplicas(in Observation) float64 {
	part := 1.0 + scaleUpTolerance
	if in.Ready < in.Replicas {
		part = 1 + startingTolerance
	}
	return min(float64(in.Replicas)*part, float64(effectiveMax(in.Settings)))
}

// scaleDown shrinks to the most that was wanted in the window, by no more than the step, and
// to no fewer than are busy, unless a bound is lower: then busy ones are drained. A pool
// that has been idle for long has no need of another window.
func (n *replicaTarget) scaleDown(in Observation, memory *Memory) {
	rule := in.Settings.ScaleDown
	if n.reason != ReasonIdle {
		n.raiseTo(memory.Recommendations.replicasToKeep(in, rule.Window), ReasonStabilizationWindow)
	}
	n.raiseTo(min(busyReplicas(in), in.Replicas, effectiveMax(in.Settings)), ReasonBusy)
	if n.value == in.Replicas {
		return
	}
	if float64(n.value) > float64(in.Replicas)*(1-scaleDownTolerance) && in.Replicas <= effectiveMax(in.Settings) {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	n.raiseTo(in.Replicas-memory.ScaleDown.allowedChange(in, rule), ReasonMaxStep)
}

// ScaleRamp is growth or shrinking that takes more than one decision.
type ScaleRamp struct {
	// StartReplicas is how many workers there were when it began.
	StartReplicas int32
	// LastChange is when the number was last changed.
	LastChange time.Time
}

// allowedChange is by how much the number may change now: by a step, once in a period. A change
// soon after another belongs to the same ramp.
func (r *ScaleRamp) allowedChange(in Observation, rule ScaleRule) int32 {
	since := in.Now.Sub(r.LastChange)
	switch {
	case r.LastChange.IsZero() || since < 0 || since > 2*rule.Period:
		r.StartReplicas = in.Replicas
	case since < rule.Period:
		return 0
	}
	r.LastChange = in.Now
	return rule.Step.replicaCount(r.StartReplicas)
}

// replicaCount is how many workers the step is.
func (s ScaleStep) replicaCount(from int32) int32 {
	switch {
	case s.Count > 0:
		return s.Count
	case s.Percent > 0:
		return max(1, int32(math.Ceil(float64(from)*float64(s.Percent)/100)))
	default:
		return maxReplicas
	}
}
