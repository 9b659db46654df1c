package queue

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// waitWindow is how far back the quantiles look.
const waitWindow = 5 * time.Minute

// waitPoints are taken between two readings.
const waitPoints = 4

// Waits are how long messages waited that were begun lately, the oldest first. Brokers do
// not tell. But a queue is taken from at its head, so the age of its oldest message is
// what the message begun at that time waited; between two readings it changes evenly.
// With several priorities the oldest is not always the next: then it is an upper bound.
type Waits []WaitPoint

// WaitPoint is that so many messages waited that long.
type WaitPoint struct {
	At     time.Time
	Wait   time.Duration
	Weight float64
}

func (w Waits) learn(before, now *broker.QueueStats) Waits {
	fresh := slices.IndexFunc(w, func(p WaitPoint) bool { return now.MeasuredTime.Sub(p.At) < waitWindow })
	if fresh < 0 {
		fresh = len(w)
	}
	kept := slices.Clone(w[fresh:])
	begun := waiting(now) - waiting(before)
	if begun <= 0 {
		return kept
	}
	from, to := headAge(before), headAge(now)
	for i := range waitPoints {
		part := (float64(i) + 0.5) / waitPoints
		kept = append(kept, WaitPoint{
			At: now.MeasuredTime, Weight: float64(begun) / waitPoints,
			Wait: from + time.Duration(part*float64(to-from)),
		})
	}
	return kept
}

// waiting grows by one with each message that is begun.
func waiting(f *broker.QueueStats) int64 {
	return int64(f.TotalArrivals) - f.Ready - f.Delayed //nolint:gosec // a count of messages
}

func headAge(f *broker.QueueStats) time.Duration {
	if f.OldestReadyTime.IsZero() {
		return 0
	}
	return max(0, f.MeasuredTime.Sub(f.OldestReadyTime))
}

// quantiles are nil if no message was begun.
func (w Waits) quantiles() *v1alpha1.WaitTimes {
	if len(w) == 0 {
		return nil
	}
	sorted := slices.Clone(w)
	slices.SortFunc(sorted, func(a, b WaitPoint) int { return cmp.Compare(a.Wait, b.Wait) })
	return &v1alpha1.WaitTimes{P50: sorted.quantile(0.5), P95: sorted.quantile(0.95)}
}

func (w Waits) quantile(part float64) *metav1.Duration {
	total := 0.0
	for _, p := range w {
		total += p.Weight
	}
	sum := 0.0
	for _, p := range w {
		if sum += p.Weight; sum >= part*total {
			return &metav1.Duration{Duration: roundSpan(p.Wait)}
		}
	}
	return &metav1.Duration{Duration: roundSpan(w[len(w)-1].Wait)}
}

// roundSpan to two digits, and not below tenths of a second.
func roundSpan(d time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return time.Duration(round(float64(d)/float64(unit))) * unit
}
