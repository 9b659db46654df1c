package queue

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// rateMemory is how long ago a message counts by a third.
const rateMemory = 30 * time.Second

// slowest rate that is told; a lower one is none.
const slowest = 0.05

// Rates are how fast messages come and go, as sums that fade: Seconds of time seen, and
// the messages in it. So they are right from the second reading on.
type Rates struct {
	Seconds, Arrived, Finished float64
}

func (r Rates) learn(before, now *broker.QueueStats, elapsed time.Duration) Rates {
	arrived := now.TotalArrivals - before.TotalArrivals
	finished := max(0, int64(arrived)-held(now)+held(before)) //nolint:gosec // a count of messages
	kept := math.Exp(-elapsed.Seconds() / rateMemory.Seconds())
	// What came in a long time came somewhere in it: it fades by half of that time.
	seen := rateMemory.Seconds() * (1 - kept) / elapsed.Seconds()
	return Rates{
		Seconds:  r.Seconds*kept + seen*elapsed.Seconds(),
		Arrived:  r.Arrived*kept + seen*float64(arrived),
		Finished: r.Finished*kept + seen*float64(finished),
	}
}

// Arriving messages a second; 0 if not known.
func (r Rates) Arriving() float64 { return r.rate(r.Arrived) }

// Finishing messages a second; 0 if not known.
func (r Rates) Finishing() float64 { return r.rate(r.Finished) }

func (r Rates) rate(messages float64) float64 {
	if r.Seconds == 0 || messages/r.Seconds < slowest {
		return 0
	}
	return messages / r.Seconds
}

// quantity is a rate for people. Two digits are enough, and keep a steady rate steady.
func quantity(rate float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(round(rate*1000)), resource.DecimalSI)
}

// round to two digits.
func round(value float64) float64 {
	if value == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(value)))-1)
	if unit < 1 {
		unit = 1
	}
	return math.Round(value/unit) * unit
}
