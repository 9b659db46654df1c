package worker

import (
	"math"
	"testing"
	"time"
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
