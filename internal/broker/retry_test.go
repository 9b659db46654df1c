package broker

import (
	"math"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestDelaysDoubleWithinTheJitterRange(t *testing.T) {
	retry := DefaultQueueConfig("orders").Retry
	for spread, first := range map[float64]time.Duration{0: 800 * time.Millisecond, 0.5: time.Second, 1: 1200 * time.Millisecond} {
		got := []time.Duration{retry.DelayAfter(1, spread), retry.DelayAfter(2, spread), retry.DelayAfter(3, spread)}
		require.Equal(t, []time.Duration{first, 2 * first, 4 * first}, got)
	}
}

func FuzzDelayNeverExceedsMaxDelay(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 200, 20, 5, 0.5)
	f.Add(int64(time.Second), int64(time.Minute), 200, 20, 1000, 0.5)
	f.Fuzz(func(t *testing.T, initialDelay, maxDelay int64, multiplier, jitter, attempt int, spread float64) {
		upTo := func(n, limit int64) int64 { return int64(uint64(n) % uint64(limit+1)) }
		if math.IsNaN(spread) || math.IsInf(spread, 0) {
			spread = 0
		}
		spread = math.Abs(math.Mod(spread, 1))
		retry := RetryPolicy{
			MaxDelay:          time.Duration(upTo(maxDelay, int64(24*time.Hour))),
			MultiplierPercent: 100 + int(upTo(int64(multiplier), 900)),
			JitterPercent:     int(upTo(int64(jitter), 100)),
		}
		retry.InitialDelay = time.Duration(upTo(initialDelay, int64(retry.MaxDelay)))
		got := retry.DelayAfter(attempt, spread)
		require.True(t, got >= 0 && got <= retry.MaxDelay, "%+v, attempt %d, spread %f: delay %s is out of bounds", retry, attempt, spread, got)
	})
}

// Only a message that is lost alone may be the cause of a loss, and only failures and such losses use up attempts.
func TestOnlyLossesAloneUseUpAttempts(t *testing.T) {
	lost := func(alone ...bool) (h History) {
		for _, one := range alone {
			h = h.AfterStart(one)
		}
		return h
	}
	waited := History{Lost: 3}
	for title, row := range map[string]struct {
		history History
		attempt int
		suspect bool
	}{
		"new":                                 {History{}, 1, false},
		"failed and released":                 {History{}.AfterFailure().AfterFailure().AfterRelease(), 3, false},
		"lost while it waited in its process": {waited, 1, false},
		"started after that, and lost":        {waited.AfterStart(false), 1, true},
		"lost beside others, and failed":      {lost(false, false).AfterFailure(), 2, true},
		"lost alone":                          {lost(false, false, true), 4, true},
		"lost alone, and failed":              {lost(false, true).AfterFailure(), 4, true},
	} {
		attempt, isSuspect := row.history.Attempt(), row.history.IsSuspect()
		require.True(t, attempt == row.attempt && isSuspect == row.suspect, "%s: attempt %d, suspect %t", title, attempt, isSuspect)
	}
}
