package scaling

import (
	"time"
)

const (
	// growth is how many times as many workers there must be before they are expected to
	// finish more.
	growth = 2
	// gain is which part of that growth must show in what is finished.
	gain = 0.25
	// settling is how long workers must have been there before they are judged, beside the
	// time in which they finish some messages.
	settling = 10 * time.Second
	// slowest rate that is told from none.
	slowest = 0.001
	// someMessages is how many service times that is.
	someMessages = 3
)

// Saturation watches whether more workers finish more messages. When what they all wait
// for, such as a database, is at its limit, they don't: each message only takes longer,
// which looks as if still more workers were needed. So who has grown must show that it was
// of use before growing again; and where it was of none, growth stops until more is
// finished, or nothing waits any more.
type Saturation struct {
	// KnownReady workers finished Known messages a second before the pool grew.
	KnownReady int32
	Known      float64
	// Ready workers are there since Since, and any at all since Woken.
	Ready        int32
	Since, Woken time.Time
	// Frozen is what was finished in a second when growth was found to be of no use; 0 if
	// it was not.
	Frozen float64
}

// freeze keeps a pool from growing. It goes by what was known before these figures, so
// that more backlog never makes fewer workers.
func (n *number) freeze(in Input, before Saturation, rates *Rates) {
	if in.Ready == 0 || n.value <= in.Replicas || in.Replicas < least(in.Policy) || in.Figures.Finished == nil {
		return
	}
	switch {
	case before.Frozen > 0:
		n.value, n.reason = in.Replicas, ReasonSaturated
	case before.grown(in) && !before.shown(in, rates), before.woken(in, rates):
		n.value, n.reason = in.Replicas, ReasonUnproven
	}
}

// grown tells whether there are more workers than are known.
func (s *Saturation) grown(in Input) bool {
	return s.KnownReady > 0 && float64(in.Ready) >= float64(s.KnownReady)*growth
}

// shown tells whether they finish more.
func (s *Saturation) shown(in Input, rates *Rates) bool {
	more := float64(in.Ready)/float64(max(s.KnownReady, 1)) - 1
	return rates.Finishing >= s.Known*(1+gain*more)
}

// woken tells whether workers have just come where there were none, and finish little of
// what they could.
func (s *Saturation) woken(in Input, rates *Rates) bool {
	could := float64(in.Ready) * float64(in.Policy.Concurrency) / rates.assumedServiceTime().Seconds()
	return s.KnownReady == 0 && fresh(in, s.Woken, rates) && rates.Finishing < gain*could
}

// fresh tells whether workers that are there since then could not have finished much.
func fresh(in Input, since time.Time, rates *Rates) bool {
	return !since.IsZero() && in.Now.Sub(since) < settling+someMessages*rates.assumedServiceTime()
}

// learn takes in what is finished now, and whether the pool is about to grow.
func (s *Saturation) learn(in Input, rates *Rates, grows bool) {
	s.see(in)
	if in.Figures.Finished == nil || in.Figures.Backlog == 0 {
		s.forget()
	}
	if in.Figures.Finished != nil && in.Ready > 0 {
		s.judge(in, rates, grows)
	}
}

// judge compares what is finished with what was.
func (s *Saturation) judge(in Input, rates *Rates, grows bool) {
	settled := !fresh(in, s.Since, rates)
	atLimit := settled && in.Ready == in.Replicas && busy(in) >= in.Ready
	switch {
	case s.Frozen > 0:
		if rates.Finishing > s.Frozen*(1+gain) {
			s.forget()
		}
	case s.grown(in) && s.shown(in, rates):
		if settled {
			s.KnownReady, s.Known = in.Ready, rates.Finishing
		}
	case s.grown(in):
		if atLimit {
			s.Frozen = max(rates.Finishing, slowest)
		}
	case s.KnownReady == 0 && (grows || atLimit):
		s.KnownReady, s.Known = in.Ready, rates.Finishing
	}
}

// see takes in who is there.
func (s *Saturation) see(in Input) {
	if in.Ready > 0 && s.Ready == 0 && !s.Since.IsZero() {
		s.Woken = in.Now
	}
	if s.Ready != in.Ready || s.Since.IsZero() || s.Since.After(in.Now) {
		s.Ready, s.Since = in.Ready, in.Now
	}
}

// forget what is known, except who is there.
func (s *Saturation) forget() {
	s.KnownReady, s.Known, s.Frozen = 0, 0, 0
}
