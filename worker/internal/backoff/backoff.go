// Package backoff tells how long a job that failed waits for its next attempt.
package backoff

import (
	"math"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Delay is the time between that attempt, counted from 1, and the next. Chance, from 0 to
// 1, is where in the jitter it falls. It is never longer than the retry's MaxDelay.
func Delay(retry broker.RetryPolicy, attempt int, chance float64) time.Duration {
	growth := math.Pow(float64(retry.MultiplierPercent)/100, float64(max(attempt, 1)-1))
	delay := min(float64(retry.InitialDelay)*growth, float64(retry.MaxDelay))
	jitter := float64(retry.JitterPercent) / 100
	delay *= 1 + jitter*(2*chance-1)
	return time.Duration(min(max(delay, 0), float64(retry.MaxDelay)))
}
