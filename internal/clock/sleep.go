// Package clock waits for times.
package clock

import (
	"context"
	"time"
)

// SleepContext waits for the duration or until ctx ends, and then returns the error of ctx.
func SleepContext(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
