package worker

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestRecentAttemptsDecay(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var recorder attemptRecorder
	recorder.record(start, time.Second, true)
	recorder.record(start, 3*time.Second, false)
	if got := recorder.recent(start); got != (RecentAttempts{Count: 2, Seconds: 4, Returned: 1}) {
		t.Errorf("at once: %+v", got)
	}
	got := recorder.recent(start.Add(recentTime))
	if math.Abs(got.Count-2/math.E) > 1e-9 || math.Abs(got.Seconds-4/math.E) > 1e-9 || math.Abs(got.Returned-1/math.E) > 1e-9 {
		t.Errorf("after two minutes: %+v", got)
	}
	recorder.record(start.Add(-time.Hour), -time.Second, false) // the clock was set back
	if got := recorder.recent(start.Add(-time.Hour)); got != (RecentAttempts{Count: 3, Seconds: 4, Returned: 1}) {
		t.Errorf("after the clock was set back: %+v", got)
	}
}

func TestReturnedMessagesCountUntilTheyAreDue(t *testing.T) {
	var r returnedMessages
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, delay := range []time.Duration{0, 2 * time.Second, time.Minute, time.Hour} {
		r.add(now, delay)
	}
	for after, want := range map[time.Duration]int{0: 2, 2 * time.Second: 2, 4 * time.Second: 1, 62 * time.Second: 0} {
		counted := returnedMessages{due: maps.Clone(r.due)}
		got := counted.count(now.Add(after))
		require.True(t, got == want, "%d after %s, want %d", got, after, want)
	}
}
