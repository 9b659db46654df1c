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
