package scaling

import (
	"time"
)

// capByUse leaves out the workers that could have no message to work on.
func (n *number) capByUse(in Input, service time.Duration) {
	p := in.Policy
	if p.RatePerSecond > 0 && service > 0 {
		slots := p.RatePerSecond * service.Seconds() / p.Utilization
		n.atMost(max(1, replicas(slots/float64(p.Concurrency))), ReasonRateLimit)
	}
	if p.MaxInFlight > 0 {
		n.atMost(replicas(float64(p.MaxInFlight)/float64(p.Concurrency)), ReasonMaxInFlight)
	}
}

// bound keeps to what the policy allows.
func (n *number) bound(in Input) {
	n.atLeast(in.Policy.Min, ReasonMinReplicas)
	n.atMost(in.Policy.Max, ReasonMaxReplicas)
	if in.Policy.Budget != nil {
		n.atMost(max(*in.Policy.Budget, 0), ReasonBudget)
	}
}

// least and most are the bounds of the policy; limits go before minReplicas.
func least(p Policy) int32 { return min(p.Min, most(p)) }

func most(p Policy) int32 {
	if p.Budget != nil {
		return min(p.Max, max(*p.Budget, 0))
	}
	return p.Max
}
