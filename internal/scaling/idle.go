package scaling

import (
	"time"
)

// idle keeps one worker as long as there is something to do, and until there has been
// nothing for the policy's time. A pool at 0 sleeps until the first message, whatever
// arrived before.
func (n *number) idle(in Input, memory *Memory) {
	if in.Figures.Backlog+in.Figures.InFlight > 0 {
		memory.IdleSince = time.Time{}
		n.atLeast(1, ReasonDemand)
		return
	}
	if memory.IdleSince.IsZero() || memory.IdleSince.After(in.Now) {
		memory.IdleSince = in.Now
	}
	if in.Replicas == 0 || in.Now.Sub(memory.IdleSince) >= in.Policy.IdleAfter {
		n.value, n.reason = 0, ReasonIdle
		return
	}
	n.atLeast(1, ReasonNotIdleForLong)
}
