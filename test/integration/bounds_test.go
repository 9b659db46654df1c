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
