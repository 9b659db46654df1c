package scaling

import (
	"time"
)

const (
	// growthFactor is how many times as many workers there must be before they are expected to
	// finish more.
	growthFactor = 2
	// requiredGain is which part of that growth must show in what is finished.
	requiredGain = 0.25
	// settlingTime is how long workers must have been there before they are judged, beside the
	// time in which they finish some messages.
	settlingTime = 10 * time.Second
	// minSaturatedRate rate that is told from none.
	minSaturatedRate = 0.001
	// settlingMessages is how many service times that is.
	settlingMessages = 3
)

// Saturation watches whether more workers finish more messages. When what they all wait
// for, such as a database, is at its limit, they don't: each message only takes longer,
// which looks as if still more workers were needed. So who has grown must show that it was
// of use before growing again; and where it was of none, growth stops until more is
// finished, or nothing waits any more.
type Saturation struct {
	// BaselineReady workers finished Known messages a second before the pool grew.
	BaselineReady int32
	BaselineRate  float64
	// Ready workers are there since Since, and any at all since Woken.
	Ready                   int32
	ReadySince, ActiveSince time.Time
	// SaturatedRate is what was finished in a second when growth was found to be of no use; 0 if
	// it was not.
	SaturatedRate float64
}

// applySaturation keeps a pool from growing. It goes by what was known before these figures, so
// that more backlog never makes fewer workers.
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

// hasGrown tells whether there are more workers than are known.
func (s *Saturation) hasGrown(in Observation) bool {
	return s.BaselineReady > 0 && float64(in.Ready) >= float64(s.BaselineReady)*growthFactor
}

// finishesMore tells whether they finish more.
func (s *Saturation) finishesMore(in Observation, rates *Rates) bool {
	more := float64(in.Ready)/float64(max(s.BaselineReady, 1)) - 1
	return rates.FinishRate >= s.BaselineRate*(1+requiredGain*more)
}

// isWarmingUp tells whether workers have just come where there were none, and finish little of
// what they could.
func (s *Saturation) isWarmingUp(in Observation, rates *Rates) bool {
	could := float64(in.Ready) * float64(in.Settings.Concurrency) / rates.serviceTimeOrDefault().Seconds()
	return s.BaselineReady == 0 && isTooRecent(in, s.ActiveSince, rates) && rates.FinishRate < requiredGain*could
}

// isTooRecent tells whether workers that are there since then could not have finished much.
func isTooRecent(in Observation, since time.Time, rates *Rates) bool {
	return !since.IsZero() && in.Now.Sub(since) < settlingTime+settlingMessages*rates.serviceTimeOrDefault()
}

// updateSaturation takes in what is finished now, and whether the pool is about to grow.
func (s *Saturation) updateSaturation(in Observation, rates *Rates, grows bool) {
	s.updateReady(in)
	if in.Stats.Finished == nil || in.Stats.Backlog == 0 {
		s.clearBaseline()
	}
	if in.Stats.Finished != nil && in.Ready > 0 {
		s.compareThroughput(in, rates, grows)
	}
}

// compareThroughput compares what is finished with what was.
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

// updateReady takes in who is there.
func (s *Saturation) updateReady(in Observation) {
	if in.Ready > 0 && s.Ready == 0 && !s.ReadySince.IsZero() {
		s.ActiveSince = in.Now
	}
	if s.Ready != in.Ready || s.ReadySince.IsZero() || s.ReadySince.After(in.Now) {
		s.Ready, s.ReadySince = in.Ready, in.Now
	}
}

// clearBaseline what is known, except who is there.
func (s *Saturation) clearBaseline() {
	s.BaselineReady, s.BaselineRate, s.SaturatedRate = 0, 0, 0
}
