package scaling

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// scaleUpTolerance and scaleDownTolerance are the relative changes below which the pool does
	// not scale, because arrivals fluctuate.
	scaleUpTolerance   = 0.22
	scaleDownTolerance = 0.2
	// startingTolerance replaces scaleUpTolerance while workers start: the pool scales up only if twice as many are
	// needed.
	startingTolerance = 1
)

// scaleUp scales up to the lowest recommendation of the window, limited by the step.
func (n *replicaTarget) scaleUp(in Observation, memory *Memory) {
	if in.Replicas > 0 && in.Replicas >= effectiveMin(in.Settings) && float64(n.value) < worthwhileReplicas(in) {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	rule := in.Settings.ScaleUp
	if rule.Window > 0 && in.Replicas > 0 {
		lowest, _ := memory.Recommendations.rangeSince(in.Now, rule.Window)
		n.lowerTo(max(in.Replicas, lowest), ReasonStabilizationWindow)
	}
	if n.value > in.Replicas {
		n.lowerTo(in.Replicas+memory.ScaleUp.allowedChange(in, rule, n.value-in.Replicas), ReasonMaxStep)
	}
	n.raiseTo(effectiveMin(in.Settings), ReasonMinReplicas)
}

// worthwhileReplicas returns the number of workers from which scaling up is worthwhile: at most the upper bound, where
// waiting gains nothing.
func worthwhileReplicas(in Observation) float64 {
	part := 1.0 + scaleUpTolerance
	if in.Ready < in.Replicas {
		part = 1 + startingTolerance
	}
	return min(float64(in.Replicas)*part, float64(effectiveMax(in.Settings)))
}

// scaleDown scales down to the highest recommendation of the window, limited by the step, and not below the number of
// busy workers unless a bound is lower. An idle pool scales to zero at once.
func (n *replicaTarget) scaleDown(in Observation, memory *Memory) {
	if n.reason == ReasonIdle {
		return
	}
	rule, reason := in.Settings.ScaleDown, n.reason
	n.raiseTo(memory.Recommendations.replicasToKeep(in, rule.Window), ReasonStabilizationWindow)
	n.raiseTo(min(busyReplicas(in), in.Replicas, effectiveMax(in.Settings)), ReasonBusy)
	if n.value == in.Replicas {
		return
	}
	if float64(n.value) > float64(in.Replicas)*(1-scaleDownTolerance) && in.Replicas <= effectiveMax(in.Settings) {
		if n.reason == reason {
			n.reason = ReasonWithinTolerance
		}
		n.value = in.Replicas
		return
	}
	n.raiseTo(in.Replicas-memory.ScaleDown.allowedChange(in, rule, in.Replicas-n.value), ReasonMaxStep)
}

// ScaleRamp is a change in one direction that takes more than one decision.
type ScaleRamp struct {
	// StartReplicas is the number of workers at the start of the ramp, PeriodReplicas at the start of the last period.
	StartReplicas, PeriodReplicas int32
	// PeriodStart is the time of the first change in the last period.
	PeriodStart time.Time
}

// secondChangeDivisor limits a change that may be followed by another change in the same period to a part of the step.
const secondChangeDivisor = 3

// allowedChange returns by how much the number of workers may change now, so that the changes of a period together are
// at most one step. A period has one change, because each change moves messages between workers. If it used only a
// small part of the step, a second change may use the rest: a pool must not keep workers because it stopped a worker
// just before its load ended. A change within two periods of the start of the last period belongs to the same ramp.
func (r *ScaleRamp) allowedChange(in Observation, rule ScaleRule, wanted int32) int32 {
	if rule.Step == nil {
		return maxReplicas
	}
	since := in.Now.Sub(r.PeriodStart)
	if r.PeriodStart.IsZero() || since < 0 || since > 2*rule.Period {
		r.StartReplicas = in.Replicas
		since = rule.Period
	}
	if since >= rule.Period {
		r.PeriodStart, r.PeriodReplicas = in.Now, in.Replicas
	}
	step, changed := stepOf(rule, r.StartReplicas), max(in.Replicas-r.PeriodReplicas, r.PeriodReplicas-in.Replicas)
	left := max(0, step-changed)
	if changed > 0 && (wanted < left || changed > step/secondChangeDivisor) {
		return 0
	}
	return left
}

// stepOf returns the largest change of a period, at least 1.
func stepOf(rule ScaleRule, startReplicas int32) int32 {
	count, err := intstr.GetScaledValueFromIntOrPercent(rule.Step, int(startReplicas), true)
	if err != nil { // the API server should have rejected it
		return maxReplicas
	}
	return int32(min(max(count, 1), maxReplicas))
}
