// Package breaker stops work that keeps failing for some time, then tries a little of it.
//
//	               too many of the last failed
//	Closed ──────────────────────────────────────────▶ Open
//	  ▲                                                 │ ▲
//	  │                                        cooldown │ │
//	  │ all probes succeeded                            ▼ │ a probe failed
//	  └─────────────────────────────────────────────  HalfOpen
//
// It is pure: it is given the time, and its user sees to it that it is used by one at a
// time.
package breaker

import (
	"fmt"
	"time"
)

// State of a breaker.
type State string

// The states.
const (
	Closed   State = "Closed"
	Open     State = "Open"
	HalfOpen State = "HalfOpen"
)

// Settings say when a breaker opens, and for how long.
type Settings struct {
	// FailureThresholdPercent of the jobs within Window that have to fail for it to open; 0:
	// it never does.
	FailureThresholdPercent int
	Window                  time.Duration
	// MinSamples is how many jobs within Window are too few to judge by.
	MinSamples int
	// Cooldown is how long it stays open.
	Cooldown time.Duration
	// HalfOpenProbes is how many jobs have to succeed, then, for it to close.
	HalfOpenProbes int
}

// Validate tells the first field that cannot be, and why.
func (s Settings) Validate() error {
	switch {
	case s.FailureThresholdPercent < 0 || s.FailureThresholdPercent > 100:
		return fmt.Errorf("failureThresholdPercent is %d, must be 0 to 100", s.FailureThresholdPercent)
	case s.FailureThresholdPercent == 0:
		return nil
	case s.Window < time.Second:
		return fmt.Errorf("window is %s, must be at least 1s", s.Window)
	case s.MinSamples < 1:
		return fmt.Errorf("minSamples is %d, must be at least 1", s.MinSamples)
	case s.Cooldown <= 0:
		return fmt.Errorf("cooldown is %s, must be more than 0", s.Cooldown)
	case s.HalfOpenProbes < 1:
		return fmt.Errorf("halfOpenProbes is %d, must be at least 1", s.HalfOpenProbes)
	}
	return nil
}

// parts is how many a window is divided into: that much finer than the window, jobs are
// forgotten.
const parts = 10

type count struct{ jobs, failed int }

// Breaker is closed at first.
type Breaker struct {
	settings Settings
	state    State
	// until is when an open breaker becomes half-open.
	until time.Time
	// counts of the window's parts, of which the latest begins at start.
	counts [parts]count
	start  time.Time
	// Of a half-open breaker: probes that run, and that succeeded.
	probing, succeeded int
	// round is another each time the breaker opens: a job from before tells nothing about
	// afterwards.
	round int
}

// New makes a breaker.
func New(settings Settings) *Breaker { return &Breaker{settings: settings, state: Closed} }

// Ticket is a job that was let through.
type Ticket struct{ round int }

// State at that time.
func (b *Breaker) State(now time.Time) State {
	if b.state == Open && !now.Before(b.until) {
		b.state, b.probing, b.succeeded = HalfOpen, 0, 0
	}
	return b.state
}

// Admits tells how many jobs may begin now; many, while it is closed.
func (b *Breaker) Admits(now time.Time) int {
	switch b.State(now) {
	case Open:
		return 0
	case HalfOpen:
		return max(0, b.settings.HalfOpenProbes-b.probing-b.succeeded)
	default:
		return 1 << 30
	}
}

// Begin is told that a job begins.
func (b *Breaker) Begin(now time.Time) Ticket {
	if b.State(now) == HalfOpen {
		b.probing++
	}
	return Ticket{b.round}
}

// End is told how a job ended.
func (b *Breaker) End(ticket Ticket, failed bool, now time.Time) {
	if ticket.round != b.round || b.settings.FailureThresholdPercent == 0 {
		return
	}
	if b.State(now) == HalfOpen {
		b.probed(failed, now)
		return
	}
	b.turn(now)
	latest := &b.counts[0]
	latest.jobs++
	if failed {
		latest.failed++
	}
	sum := count{}
	for _, c := range b.counts {
		sum.jobs, sum.failed = sum.jobs+c.jobs, sum.failed+c.failed
	}
	if sum.jobs >= b.settings.MinSamples && 100*sum.failed >= b.settings.FailureThresholdPercent*sum.jobs {
		b.open(now)
	}
}

// Abandon is told of a job that ended without an outcome.
func (b *Breaker) Abandon(ticket Ticket, now time.Time) {
	if ticket.round == b.round && b.State(now) == HalfOpen && b.probing > 0 {
		b.probing--
	}
}

func (b *Breaker) probed(failed bool, now time.Time) {
	b.probing--
	b.succeeded++
	switch {
	case failed:
		b.open(now)
	case b.succeeded >= b.settings.HalfOpenProbes:
		b.state, b.counts = Closed, [parts]count{}
	}
}

func (b *Breaker) open(now time.Time) {
	b.state, b.until, b.counts = Open, now.Add(b.settings.Cooldown), [parts]count{}
	b.round++
}

// turn forgets what is older than the window.
func (b *Breaker) turn(now time.Time) {
	part := b.settings.Window / parts
	for n := 0; !now.Before(b.start.Add(part)); n++ {
		if n == parts {
			b.start = now
			return
		}
		copy(b.counts[1:], b.counts[:parts-1])
		b.counts[0] = count{}
		b.start = b.start.Add(part)
	}
}
