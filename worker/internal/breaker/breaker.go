// Package breaker implements a circuit breaker: it stops work that keeps failing, and after a cooldown admits one probe to find out
// whether the cause is fixed.
//
//	         the failure threshold is reached
//	Closed ────────────────────────────────────▶ Open
//	  ▲                                           │ ▲
//	  │                                  cooldown │ │
//	  │ the probe succeeded                       ▼ │ the probe failed
//	  └───────────────────────────────────────  HalfOpen
//
// The package is pure: callers pass in the time and serialize access.
package breaker

import (
	"fmt"
	"time"
)

// State of a breaker.
type State string

// The states of a breaker.
const (
	Closed   State = "Closed"
	Open     State = "Open"
	HalfOpen State = "HalfOpen"
)

// Settings define when a breaker opens and when it closes again. With the zero value, a breaker never opens.
type Settings struct {
	// FailureThresholdPercent is the share of failed jobs within Window at which the breaker opens. 0 disables the breaker.
	FailureThresholdPercent int
	// Window is the period over which results are counted.
	Window time.Duration
	// MinSamples is the number of results within Window below which the breaker stays closed.
	MinSamples int
	// Cooldown is the time that the breaker stays open.
	Cooldown time.Duration
}

// Validate returns an error that names the first invalid field.
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
	}
	return nil
}

const (
	// windowBuckets is the number of buckets of the window. Results leave the window with their bucket.
	windowBuckets = 10
	// unlimitedJobs is the admission limit of a closed breaker.
	unlimitedJobs = 1 << 30
)

// resultCount is the number of results in one bucket of the window.
type resultCount struct{ finished, failed int }

// Breaker is a circuit breaker. It starts closed. It is not safe for concurrent use.
type Breaker struct {
	settings Settings
	state    State
	// openUntil is when an open breaker becomes half-open.
	openUntil time.Time
	// buckets of the window, the latest first. The latest bucket starts at bucketStart.
	buckets     [windowBuckets]resultCount
	bucketStart time.Time
	// probing is true while the probe of a half-open breaker runs.
	probing bool
	// generation increases each time the breaker opens. Jobs of an earlier generation are not counted, because they do not show whether
	// the cause is fixed.
	generation int
}

// New returns a closed breaker.
func New(settings Settings) *Breaker { return &Breaker{settings: settings, state: Closed} }

// Ticket identifies an admitted job. Pass it to RecordResult or DiscardResult.
type Ticket struct{ generation int }

// State returns the breaker's state at the given time.
func (b *Breaker) State(now time.Time) State {
	if b.state == Open && !now.Before(b.openUntil) {
		b.state, b.probing = HalfOpen, false
	}
	return b.state
}

// AdmissionLimit returns the number of jobs that may start now: 0 while the breaker is open or its probe runs, 1 before the
// probe, and effectively no limit while it is closed.
func (b *Breaker) AdmissionLimit(now time.Time) int {
	switch state := b.State(now); {
	case state == Closed:
		return unlimitedJobs
	case state == HalfOpen && !b.probing:
		return 1
	default:
		return 0
	}
}

// AdmitJob records that a job starts. Call it only if AdmissionLimit is more than 0.
func (b *Breaker) AdmitJob(now time.Time) Ticket {
	if b.State(now) == HalfOpen {
		b.probing = true
	}
	return Ticket{b.generation}
}

// RecordResult records the result of an admitted job.
func (b *Breaker) RecordResult(ticket Ticket, failed bool, now time.Time) {
	if ticket.generation != b.generation || b.settings.FailureThresholdPercent == 0 {
		return
	}
	if b.State(now) == HalfOpen {
		if failed {
			b.openBreaker(now)
		} else {
			b.state, b.buckets = Closed, [windowBuckets]resultCount{}
		}
		return
	}
	b.rotateBuckets(now)
	latest := &b.buckets[0]
	latest.finished++
	if failed {
		latest.failed++
	}
	sum := resultCount{}
	for _, bucket := range b.buckets {
		sum.finished, sum.failed = sum.finished+bucket.finished, sum.failed+bucket.failed
	}
	if sum.finished >= b.settings.MinSamples && 100*sum.failed >= b.settings.FailureThresholdPercent*sum.finished {
		b.openBreaker(now)
	}
}

// DiscardResult releases an admitted job that has no meaningful result.
func (b *Breaker) DiscardResult(ticket Ticket, now time.Time) {
	if ticket.generation == b.generation && b.State(now) == HalfOpen {
		b.probing = false
	}
}

func (b *Breaker) openBreaker(now time.Time) {
	b.state, b.openUntil, b.buckets = Open, now.Add(b.settings.Cooldown), [windowBuckets]resultCount{}
	b.generation++
}

// rotateBuckets drops the results that are older than the window.
func (b *Breaker) rotateBuckets(now time.Time) {
	length := b.settings.Window / windowBuckets
	for rotations := 0; !now.Before(b.bucketStart.Add(length)); rotations++ {
		if rotations == windowBuckets {
			b.bucketStart = now
			return
		}
		copy(b.buckets[1:], b.buckets[:windowBuckets-1])
		b.buckets[0] = resultCount{}
		b.bucketStart = b.bucketStart.Add(length)
	}
}
