package scaling

import (
	"time"
)

// applyQueueLimits removes workers for which the limits of the queues leave no messages.
func (n *replicaTarget) applyQueueLimits(in Observation, service time.Duration) {
	p := in.Settings
	if p.RatePerSecond > 0 && service > 0 {
		slots := p.RatePerSecond * service.Seconds() / p.Utilization
		n.lowerTo(max(1, roundUpReplicas(slots/float64(p.Concurrency))), ReasonRateLimit)
	}
	if p.MaxInFlight > 0 {
		n.lowerTo(roundUpReplicas(float64(p.MaxInFlight)/float64(p.Concurrency)), ReasonMaxInFlight)
	}
}

// applyBounds applies minReplicas, maxReplicas and the budget.
func (n *replicaTarget) applyBounds(in Observation) {
	n.raiseTo(in.Settings.MinReplicas, ReasonMinReplicas)
	n.lowerTo(in.Settings.MaxReplicas, ReasonMaxReplicas)
	if in.Settings.Budget != nil {
		n.lowerTo(max(*in.Settings.Budget, 0), ReasonBudget)
	}
}

// effectiveMin returns the lower bound. Upper bounds take precedence over it.
func effectiveMin(p Settings) int32 { return min(p.MinReplicas, effectiveMax(p)) }

// effectiveMax returns the upper bound.
func effectiveMax(p Settings) int32 {
	if p.Budget != nil {
		return min(p.MaxReplicas, max(*p.Budget, 0))
	}
	return p.MaxReplicas
}
