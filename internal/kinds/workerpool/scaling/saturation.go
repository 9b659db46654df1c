package scaling

import (
	"time"
)

const (
	// growthFactor is the growth of the number of workers from which throughput is expected to grow.
	growthFactor = 2
	// requiredGain is the part of the workers' growth by which throughput must grow.
	requiredGain = 0.25
	// settlingTime is how long workers must be ready before their throughput counts, in addition to the time for
	// settlingMessages.
	settlingTime = 10 * time.Second
	// minSaturatedRate is the smallest throughput that differs from zero.
	minSaturatedRate = 0.001
	// settlingMessages is the number of messages that each worker must have had time to handle.
	settlingMessages = 3
)

// Saturation detects whether more workers increase throughput. If a dependency of all workers, such as a database, is
// at its limit, more workers only make each message take longer, which seems to call for even more workers. So after
// scaling up, throughput must grow before the pool scales up again. If it does not, the pool stops scaling up until
// throughput grows or the backlog is empty.
type Saturation struct {
	// BaselineReady workers had the throughput BaselineRate, in messages per second, before the
	// last scale-up.
	BaselineReady int32
	BaselineRate  float64
	// Ready is the number of ready workers since ReadySince. ActiveSince is when the pool last got its first ready
	// worker.
	Ready                   int32
	ReadySince, ActiveSince time.Time
	// SaturatedRate is the throughput at which scaling up was found useless; 0 if it was not.
	SaturatedRate float64
}

// applySaturation prevents a useless scale-up. It uses the state before the current stats, so that a larger backlog
// never leads to fewer workers.
func (n *replicaTarget) applySaturation(in Observation, before Saturation, rates *Rates) {
	if in.Ready == 0 || n.value <= in.Replicas || in.Replicas < effectiveMin(in.Settings) || in.Stats.Finished == nil {
		return
	}
	switch {
	case before.SaturatedRate > 0:
		n.value, n.reason = in.Replicas, ReasonThroughputSaturated
	case before.hasGrown(in) && !before.finishesMore(in, rates), before.isWarmingUp(in, rates):
		n.value, n.reason = in.Replicas, ReasonThroughputUnproven
	}
}

// hasGrown reports whether the number of ready workers has grown enough to expect more throughput.
func (s *Saturation) hasGrown(in Observation) bool {
	return s.BaselineReady > 0 && float64(in.Ready) >= float64(s.BaselineReady)*growthFactor
}

func (s *Saturation) finishesMore(in Observation, rates *Rates) bool {
	more := float64(in.Ready)/float64(max(s.BaselineReady, 1)) - 1
	return rates.FinishRate >= s.BaselineRate*(1+requiredGain*more)
}

// isWarmingUp reports whether the first workers have just started, and their throughput is still
// low.
func (s *Saturation) isWarmingUp(in Observation, rates *Rates) bool {
	could := float64(in.Ready) * float64(in.Settings.Concurrency) / rates.serviceTimeOrDefault().Seconds()
	return s.BaselineReady == 0 && isTooRecent(in, s.ActiveSince, rates) && rates.FinishRate < requiredGain*could
}

// isTooRecent reports whether workers that became ready at a time cannot have handled enough messages.
func isTooRecent(in Observation, since time.Time, rates *Rates) bool {
	return !since.IsZero() && in.Now.Sub(since) < settlingTime+settlingMessages*rates.serviceTimeOrDefault()
}

func (s *Saturation) updateSaturation(in Observation, rates *Rates, grows bool) {
	s.updateReady(in)
	if in.Stats.Finished == nil || in.Stats.Backlog == 0 {
		s.clearBaseline()
	}
	if in.Stats.Finished != nil && in.Ready > 0 {
		s.compareThroughput(in, rates, grows)
	}
}

func (s *Saturation) compareThroughput(in Observation, rates *Rates, grows bool) {
	settled := !isTooRecent(in, s.ReadySince, rates)
	atLimit := settled && in.Ready == in.Replicas && busyReplicas(in) >= in.Ready
	switch {
	case s.SaturatedRate > 0:
		if rates.FinishRate > s.SaturatedRate*(1+requiredGain) {
			s.clearBaseline()
		}
	case s.hasGrown(in) && s.finishesMore(in, rates):
		if settled {
			s.BaselineReady, s.BaselineRate = in.Ready, rates.FinishRate
		}
	case s.hasGrown(in):
		if atLimit {
			s.SaturatedRate = max(rates.FinishRate, minSaturatedRate)
		}
	case s.BaselineReady == 0 && (grows || atLimit):
		s.BaselineReady, s.BaselineRate = in.Ready, rates.FinishRate
	}
}

func (s *Saturation) updateReady(in Observation) {
	if in.Ready > 0 && s.Ready == 0 && !s.ReadySince.IsZero() {
		s.ActiveSince = in.Now
	}
	if s.Ready != in.Ready || s.ReadySince.IsZero() || s.ReadySince.After(in.Now) {
		s.Ready, s.ReadySince = in.Ready, in.Now
	}
}

// clearBaseline discards everything except the number of ready workers.
func (s *Saturation) clearBaseline() {
	s.BaselineReady, s.BaselineRate, s.SaturatedRate = 0, 0, 0
}
