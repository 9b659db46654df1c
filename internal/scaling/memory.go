package scaling

import (
	"slices"
	"time"
)

// Memory is what a decision must know of those before.
type Memory struct {
	Rates Rates
	// Recommendations of the last decisions.
	Recommendations Recommendations
	// ScaleUp and Down are growth and shrinking under way.
	ScaleUp, ScaleDown ScaleRamp
	// IdleSince there is nothing to do.
	IdleSince time.Time
	// MissingSince there are no figures.
	MissingSince time.Time
	Saturation   Saturation
}

func (m Memory) cloneMemory() Memory {
	m.Recommendations = slices.Clone(m.Recommendations)
	return m
}

// resetCounters is for when figures are missing: what changed in that time cannot be told.
func (m *Memory) resetCounters(now time.Time) {
	m.Rates.MeasuredAt = time.Time{}
	m.IdleSince = time.Time{}
	if m.MissingSince.IsZero() || m.MissingSince.After(now) {
		m.MissingSince = now
	}
}
