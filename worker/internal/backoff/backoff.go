// Package backoff computes the delay between two attempts of a job.
package backoff

import (
	"math"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// RetryDelay returns the time between the given attempt, counted from 1, and the next one.
// Spread, from 0 to 1, selects a point within the jitter range. The result is between 0 and
// the retry policy's MaxDelay.
func RetryDelay(retry broker.RetryPolicy, attempt int, spread float64) time.Duration {
	growth := math.Pow(float64(retry.MultiplierPercent)/100, float64(max(attempt, 1)-1))
	delay := min(float64(retry.InitialDelay)*growth, float64(retry.MaxDelay))
	jitter := float64(retry.JitterPercent) / 100
	delay *= 1 + jitter*(2*spread-1)
	return time.Duration(min(max(delay, 0), float64(retry.MaxDelay)))
}
