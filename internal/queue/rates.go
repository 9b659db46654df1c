package queue

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// rateTimeConstant is the age at which a message counts by 1/e in a rate.
const rateTimeConstant = 30 * time.Second

// minRate in messages per second; a lower rate counts as 0.
const minRate = 0.05

// Rates are exponentially decaying sums of observed seconds and of the messages in them. They
// are correct from the second read of the stats on.
type Rates struct {
	Seconds, Arrived, Finished float64
}

func (r Rates) add(before, now *broker.QueueStats, elapsed time.Duration) Rates {
	arrived := now.TotalArrivals - before.TotalArrivals
	finished := max(0, int64(arrived)-messageCount(now)+messageCount(before)) //nolint:gosec // a count of messages
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

// rateQuantity rounds a rate to two digits, so that a steady rate does not change the status.
func rateQuantity(rate float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(roundToTwoDigits(rate*1000)), resource.DecimalSI)
}

// roundToTwoDigits rounds to two significant digits, but not to fractions.
func roundToTwoDigits(value float64) float64 {
	if value == 0 {
		return 0
	}
	unit := max(1, math.Pow(10, math.Floor(math.Log10(math.Abs(value)))-1))
	return math.Round(value/unit) * unit
}
