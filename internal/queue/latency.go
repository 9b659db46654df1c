package queue

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// latencyWindow is the time that the latency quantiles cover.
	latencyWindow = 5 * time.Minute
	// samplesPerRead is the number of samples that each read of the stats adds.
	samplesPerRead = 4
)

// LatencySamples estimate how long messages waited until a worker took them, the oldest sample
// first. Brokers do not report that. But workers take messages from the head of the queue, so a
// message waits as long as the oldest message is old when it is taken. Between two reads that
// age changes evenly. With several priorities the estimate is an upper bound, because the
// oldest message is not always the next.
type LatencySamples []LatencySample

// LatencySample says that Weight messages waited for Wait.
type LatencySample struct {
	Time   time.Time
	Wait   time.Duration
	Weight float64
}

func (l LatencySamples) add(before, now *broker.QueueStats) LatencySamples {
	firstInWindow := slices.IndexFunc(l, func(s LatencySample) bool { return now.MeasuredTime.Sub(s.Time) < latencyWindow })
	if firstInWindow < 0 {
		firstInWindow = len(l)
	}
	samples := slices.Clone(l[firstInWindow:])
	taken := takenTotal(now) - takenTotal(before)
	if taken <= 0 {
		return samples
	}
	from, to := oldestAge(before), oldestAge(now)
	for i := range samplesPerRead {
		part := (float64(i) + 0.5) / samplesPerRead
		samples = append(samples, LatencySample{
			Time: now.MeasuredTime, Weight: float64(taken) / samplesPerRead,
			Wait: from + time.Duration(part*float64(to-from)),
		})
	}
	return samples
}

// takenTotal returns how many messages workers have taken so far.
func takenTotal(stats *broker.QueueStats) int64 {
	return int64(stats.TotalArrivals) - stats.Ready - stats.Delayed //nolint:gosec // a count of messages
}

func oldestAge(stats *broker.QueueStats) time.Duration {
	if stats.OldestReadyTime.IsZero() {
		return 0
	}
	return max(0, stats.MeasuredTime.Sub(stats.OldestReadyTime))
}

// waitTimes returns the quantiles; nil if workers took no message.
func (l LatencySamples) waitTimes() *v1alpha1.WaitTimes {
	if len(l) == 0 {
		return nil
	}
	sorted := slices.Clone(l)
	slices.SortFunc(sorted, func(a, b LatencySample) int { return cmp.Compare(a.Wait, b.Wait) })
	return &v1alpha1.WaitTimes{P50: sorted.quantile(0.5), P95: sorted.quantile(0.95)}
}

// quantile expects sorted samples.
func (l LatencySamples) quantile(part float64) *metav1.Duration {
	total := 0.0
	for _, sample := range l {
		total += sample.Weight
	}
	sum := 0.0
	for _, sample := range l {
		if sum += sample.Weight; sum >= part*total {
			return &metav1.Duration{Duration: roundDuration(sample.Wait)}
		}
	}
	return &metav1.Duration{Duration: roundDuration(l[len(l)-1].Wait)}
}

// roundDuration rounds to two digits, and not below tenths of a second.
func roundDuration(d time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return time.Duration(roundToTwoDigits(float64(d)/float64(unit))) * unit
}
