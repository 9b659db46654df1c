package scaling

import (
	"time"
)

// applyIdleRule keeps one worker while messages exist, and until none have existed for idleAfter.
// A pool without workers stays at zero until a message arrives, regardless of earlier arrivals.
func (n *replicaTarget) applyIdleRule(in Observation, memory *Memory) {
	if in.Stats.Backlog+in.Stats.InFlight > 0 {
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
