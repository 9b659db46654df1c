package scaling

import (
	"slices"
	"time"
)

// Memory is the part of earlier decisions that a decision needs.
type Memory struct {
	Rates Rates
	// Recommendations of the last decisions.
	Recommendations Recommendations
	// ScaleUp and ScaleDown are changes in progress.
	ScaleUp, ScaleDown ScaleRamp
	// IdleSince is since when no messages exist; zero if messages exist.
	IdleSince time.Time
	// MissingSince is since when stats are unavailable; zero if they are available.
	MissingSince time.Time
	Saturation   Saturation
}

func (m Memory) cloneMemory() Memory {
	m.Recommendations = slices.Clone(m.Recommendations)
	return m
}

// resetCounters discards the counters while stats are unavailable, because changes in this time are unknown.
func (m *Memory) resetCounters(now time.Time) {
	m.Rates.MeasuredAt = time.Time{}
	m.IdleSince = time.Time{}
	if m.MissingSince.IsZero() || m.MissingSince.After(now) {
		m.MissingSince = now
	}
}
