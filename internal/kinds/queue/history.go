package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// History is the state that the next reconciliation of a Queue needs. It is kept in memory only: after a restart of the
// operator it is empty.
type History struct {
	Stats      StatsHistory
	Comparison Comparison
	Stranded   StrandedMessages
	Requeue    RequeueProgress
}

// RequeueProgress is the progress of a requested requeue, which takes several reconciliations if the queue has many dead letters.
type RequeueProgress struct {
	// After is the ID of the last processed dead letter; 0 before the first part ends. Left is the number of dead letters that follow it and
	// existed when the requeue began: workers may bury requeued messages again meanwhile.
	After uint64
	Left  int64
	// Requeued is the number of requeued dead letters. Kept is why one of the others stays.
	Requeued int64
	Kept     error
}

// RequeuedPart is the result of a part of a requeue.
type RequeuedPart struct {
	// Processed includes dead letters that stay.
	Requeued, Processed int
	// Last is the ID of the last processed dead letter.
	Last uint64
	// TimedOut: the time of the action ended, and further dead letters may follow.
	TimedOut bool
}

// StrandedMessages are the messages that no worker receives and that are no dead letters, after the last sweep.
type StrandedMessages struct {
	// Number of messages; nil if unknown.
	Number *int64
	// Since is when a sweep first left stranded messages; zero if the last sweep left none. It stays while the number is
	// unknown.
	Since time.Time
}

func (s StrandedMessages) add(number *int64, now time.Time) StrandedMessages {
	s.Number = number
	switch {
	case number != nil && *number == 0:
		s.Since = time.Time{}
	case number != nil && s.Since.IsZero():
		s.Since = now
	}
	return s
}

// StatsHistory derives rates and latencies from successive stats. They are unknown until stats have been read twice.
type StatsHistory struct {
	Last    *broker.QueueStats
	Rates   Rates
	Latency LatencySamples
	// EmptySince is when the queue became empty; zero while it is not.
	EmptySince time.Time
}

// add returns the history with new stats. It compares only times of the broker's clock.
func (h StatsHistory) add(stats *broker.QueueStats) StatsHistory {
	if h.Last == nil || stats.TotalArrivals < h.Last.TotalArrivals || stats.MeasuredTime.Before(h.Last.MeasuredTime) {
		h = StatsHistory{} // the queue was created again
	} else if elapsed := stats.MeasuredTime.Sub(h.Last.MeasuredTime); elapsed > 0 {
		h.Rates = h.Rates.add(h.Last, stats, elapsed)
		h.Latency = h.Latency.add(h.Last, stats)
	}
	switch {
	case messageCount(stats) > 0:
		h.EmptySince = time.Time{}
	case h.EmptySince.IsZero():
		h.EmptySince = stats.MeasuredTime
	}
	h.Last = stats
	return h
}

// messageCount returns the number of messages in the queue without dead letters.
func messageCount(stats *broker.QueueStats) int64 {
	return stats.Ready + stats.InFlight + stats.Delayed
}

// arrivedCount returns the number of messages in the queue that TotalArrivals counts.
func arrivedCount(stats *broker.QueueStats) int64 { return messageCount(stats) - stats.Postponed }

// The intervals between two reads of the stats. An empty queue is read less and less often, because the broker reports its next
// message.
const (
	busyInterval    = 5 * time.Second
	delayedInterval = 15 * time.Second
	idleInterval    = time.Minute
)

func (h StatsHistory) interval() time.Duration {
	switch {
	case h.Last == nil || h.Last.Ready+h.Last.InFlight > 0:
		return busyInterval
	case h.Last.Delayed > 0:
		return delayedInterval
	}
	return min(max(h.Last.MeasuredTime.Sub(h.EmptySince), busyInterval), idleInterval)
}

func (h StatsHistory) isIdle() bool { return h.Last != nil && h.Last.Ready+h.Last.InFlight == 0 }

// rateTimeConstant is the age at which a message counts by 1/e in a rate.
const rateTimeConstant = 30 * time.Second

// minRate in messages per second; a lower rate counts as 0.
const minRate = 0.05

// Rates are exponentially decaying sums of observed seconds and of the messages in them. They are correct from the second read
// of the stats on.
type Rates struct {
	Seconds, Arrived, Finished float64
}

func (r Rates) add(before, now *broker.QueueStats, elapsed time.Duration) Rates {
	arrived := now.TotalArrivals - before.TotalArrivals
	finished := max(0, int64(arrived)-arrivedCount(now)+arrivedCount(before)) //nolint:gosec // a count of messages
	decay := math.Exp(-elapsed.Seconds() / rateTimeConstant.Seconds())
	// Messages arrive evenly over the elapsed time, so their weight is the mean decay in it.
	weight := rateTimeConstant.Seconds() * (1 - decay) / elapsed.Seconds()
	return Rates{
		Seconds:  r.Seconds*decay + weight*elapsed.Seconds(),
		Arrived:  r.Arrived*decay + weight*float64(arrived),
		Finished: r.Finished*decay + weight*float64(finished),
	}
}

// arrivalRate returns messages per second; 0 if unknown.
func (r Rates) arrivalRate() float64 { return r.perSecond(r.Arrived) }

// serviceRate returns finished messages per second; 0 if unknown.
func (r Rates) serviceRate() float64 { return r.perSecond(r.Finished) }

func (r Rates) perSecond(messages float64) float64 {
	if r.Seconds == 0 || messages/r.Seconds < minRate {
		return 0
	}
	return messages / r.Seconds
}

// steadySeconds is how long arrivals have to be observed before their rate counts as steady.
const steadySeconds = 0.8 * float64(rateTimeConstant/time.Second)

// rateBelowArrivals reports whether the rate limit keeps workers from ever catching up.
func rateBelowArrivals(r *v1alpha1.RateLimit, history StatsHistory) (limit, arriving float64, found bool) {
	desired := desiredRateLimit(r)
	if desired == nil || history.Last == nil || history.Last.Ready == 0 || history.Rates.Seconds < steadySeconds {
		return 0, 0, false
	}
	limit, arriving = float64(desired.Limit)/desired.Per.Seconds(), history.Rates.arrivalRate()
	return limit, arriving, arriving > 1.05*limit
}

// rateQuantity rounds a rate to two digits, so that a steady rate does not change the status.
func rateQuantity(rate float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(roundToTwoDigits(rate*1000)), resource.DecimalSI)
}

// roundToTwoDigits rounds to two significant digits, but never to fractions.
func roundToTwoDigits(value float64) float64 {
	if value == 0 {
		return 0
	}
	unit := max(1, math.Pow(10, math.Floor(math.Log10(math.Abs(value)))-1))
	return math.Round(value/unit) * unit
}

const (
	// latencyWindow is the time that the latency quantiles cover.
	latencyWindow = 5 * time.Minute
	// samplesPerRead is the number of samples that each read of the stats adds.
	samplesPerRead = 4
)

// LatencySamples estimate how long messages waited until a worker took them, the oldest sample first. Brokers do not report
// this time. But workers take messages from the head of the queue, so the age of the oldest message is how long the next
// message has waited. Between two reads, this age changes evenly. With several priorities the estimate is an upper bound,
// because the oldest message is not always the next.
type LatencySamples []LatencySample

// LatencySample records that Weight messages waited for Wait.
type LatencySample struct {
	Time   time.Time
	Wait   time.Duration
	Weight float64
}

func (l LatencySamples) add(before, now *broker.QueueStats) LatencySamples {
	samples := slices.DeleteFunc(slices.Clone(l), func(s LatencySample) bool { return now.MeasuredTime.Sub(s.Time) >= latencyWindow })
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

// takenTotal returns how many messages workers have taken since the queue was created.
func takenTotal(stats *broker.QueueStats) int64 {
	return int64(stats.TotalArrivals) - stats.Ready - stats.Delayed + stats.Postponed //nolint:gosec // a count of messages
}

func oldestAge(stats *broker.QueueStats) time.Duration {
	if stats.OldestReadyTime.IsZero() {
		return 0
	}
	return max(0, stats.MeasuredTime.Sub(stats.OldestReadyTime))
}

// waitP95 returns the 95th percentile of the waiting times; nil if workers took no message.
func (l LatencySamples) waitP95() *metav1.Duration {
	if len(l) == 0 {
		return nil
	}
	sorted := slices.Clone(l)
	slices.SortFunc(sorted, func(a, b LatencySample) int { return cmp.Compare(a.Wait, b.Wait) })
	total := 0.0
	for _, sample := range sorted {
		total += sample.Weight
	}
	sum := 0.0
	i := slices.IndexFunc(sorted, func(s LatencySample) bool {
		sum += s.Weight
		return sum >= 0.95*total
	})
	return &metav1.Duration{Duration: roundDuration(sorted[i].Wait)}
}

// roundDuration rounds to two digits, at least to tenths of a second.
func roundDuration(d time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return time.Duration(roundToTwoDigits(float64(d)/float64(unit))) * unit
}
