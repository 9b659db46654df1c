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

func (n *replicaTarget) applyBounds(in Observation) {
	n.raiseTo(in.Settings.MinReplicas, ReasonMinReplicas)
	n.lowerTo(in.Settings.MaxReplicas, ReasonMaxReplicas)
	if in.Settings.Budget != nil {
		n.lowerTo(max(*in.Settings.Budget, 0), ReasonBudget)
	}
}

// effectiveMin returns the lower bound. Upper bounds take precedence.
func effectiveMin(p Settings) int32 { return min(p.MinReplicas, effectiveMax(p)) }

func effectiveMax(p Settings) int32 {
	if p.Budget != nil {
		return min(p.MaxReplicas, max(*p.Budget, 0))
	}
	return p.MaxReplicas
}

// applyIdleRule keeps one worker until the pool had no work for idleAfter. A pool without workers stays at zero until a
// message is due, regardless of earlier arrivals. Messages that wait for a retry count as backlog when they are due,
// and then scale the pool from zero.
func (n *replicaTarget) applyIdleRule(in Observation, memory *Memory) {
	if !in.needsNoWorker() {
		memory.IdleSince = time.Time{}
		n.raiseTo(1, ReasonDemand)
		return
	}
	if memory.IdleSince.IsZero() || memory.IdleSince.After(in.Now) {
		memory.IdleSince = in.Now
	}
	if in.Replicas == 0 || in.Now.Sub(memory.IdleSince) >= in.Settings.IdleAfter {
		n.value, n.reason = 0, ReasonIdle
		return
	}
	n.raiseTo(1, ReasonIdleAfter)
}

// needsNoWorker reports whether the pool has no work, or not more than the activation threshold. A pool with
// minReplicas is always active.
func (in *Observation) needsNoWorker() bool {
	s := in.Stats
	return s.IsIdle() || in.Settings.MinReplicas == 0 && s.Running == 0 && s.Backlog+s.Unaccounted <= s.ActivationThreshold
}

// replicasWithoutStats keeps the number of workers, because an unknown backlog is not zero. After fallback.after, it
// applies the fallback as a lower bound.
func replicasWithoutStats(in Observation) replicaTarget {
	n := replicaTarget{in.Replicas, ReasonStatsUnavailable}
	since := in.Memory.MissingSince
	fallback := in.Settings.Fallback
	if fallback != nil && !since.IsZero() && in.Now.Sub(since) >= fallback.After {
		n.raiseTo(min(fallback.Replicas, effectiveMax(in.Settings)), ReasonFallback)
	}
	n.raiseTo(effectiveMin(in.Settings), ReasonMinReplicas)
	return n
}
