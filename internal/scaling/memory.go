package scaling

import (
	"slices"
	"time"
)

// Memory is what a decision must know of those before.
type Memory struct {
	Rates Rates
	// Wants of the last decisions.
	Wants Wants
	// Up and Down are growth and shrinking under way.
	Up, Down Ramp
	// IdleSince there is nothing to do.
	IdleSince time.Time
	// MissingSince there are no figures.
	MissingSince time.Time
	Saturation   Saturation
}

func (m Memory) clone() Memory {
	m.Wants = slices.Clone(m.Wants)
	return m
}

// forgetCounters is for when figures are missing: what changed in that time cannot be told.
func (m *Memory) forgetCounters(now time.Time) {
	m.Rates.At = time.Time{}
	m.IdleSince = time.Time{}
	if m.MissingSince.IsZero() || m.MissingSince.After(now) {
		m.MissingSince = now
	}
}
