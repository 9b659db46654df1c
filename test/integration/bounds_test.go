package integration

import (
	"testing"
	"time"
)

// busyMachine is how much longer than promised something may take in tests, because their machine may be busy.
const busyMachine = 4

// assertWithin checks that an event happened within the time that is promised for it.
func assertWithin(t *testing.T, what string, promised time.Duration, since time.Time) {
	t.Helper()
	took := time.Since(since)
	t.Logf("%s after %s", what, took.Round(time.Millisecond))
	if most := busyMachine * promised; took > most {
		t.Errorf("%s after %s, want %s, or on a busy machine at most %s", what, took, promised, most)
	}
}

// TestTiming runs tests that measure time, or wait to see that nothing happens.
func TestTiming(t *testing.T) {
	t.Parallel()
	for title, run := range map[string]func(*testing.T){
		"only busy Pods are protected from the removal of their node": protectsOnlyBusyPods,
		"a pool scales from zero on the first message, and back":      scalesFromZeroAndBack,
		"of an unchanged pool, only the status is written":            writesOnlyStatusOfAnUnchangedPool,
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}
