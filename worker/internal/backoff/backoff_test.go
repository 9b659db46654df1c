package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/broker"
)

func TestDelay(t *testing.T) {
	retry := broker.DefaultQueueConfig("orders").Retry
	for name, row := range map[string]struct {
		chance float64
		want   []time.Duration
	}{
		"in the middle": {0.5, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		"the shortest":  {0, []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond}},
		"the longest":   {1, []time.Duration{1200 * time.Millisecond, 2400 * time.Millisecond, 4800 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			for attempt := range 3 {
				got = append(got, Delay(retry, attempt+1, row.chance))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("delays (-want +got):\n%s", diff)
			}
		})
	}
	if got := Delay(retry, 1000, 0.5); got != retry.MaxDelay {
		t.Errorf("the thousandth delay is %s", got)
	}
}

func FuzzDelay(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 200, 20, 5, 0.5)
	f.Fuzz(func(t *testing.T, initial, most int64, multiplier, jitter, attempt int, chance float64) {
		within := func(n int64, most int64) int64 { return int64(uint64(n) % uint64(most+1)) }
		if math.IsNaN(chance) || math.IsInf(chance, 0) {
			chance = 0
		}
		chance = math.Abs(math.Mod(chance, 1))
		retry := broker.RetryPolicy{
			MaxDelay:          time.Duration(within(most, int64(24*time.Hour))),
			MultiplierPercent: 100 + int(within(int64(multiplier), 900)),
			JitterPercent:     int(within(int64(jitter), 100)),
		}
		retry.InitialDelay = time.Duration(within(initial, int64(retry.MaxDelay)))
		if got := Delay(retry, attempt, chance); got < 0 || got > retry.MaxDelay {
			t.Errorf("%+v, attempt %d, chance %f: %s", retry, attempt, chance, got)
		}
	})
}
