// Package poll is how all tests wait. A wait ends as soon as its condition is true, so its limit is long: it only ends
// tests that would wait forever, and a busy machine needs many times as long as an idle one.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// limit of each wait.
	limit = 10 * time.Minute
	// The interval between two checks grows from the first to the last of these, so that a condition that is true soon costs
	// no time, and many tests that wait long cost no processor.
	firstInterval, lastInterval = time.Millisecond, 100 * time.Millisecond
)

// Until waits until the condition is true, and fails the test after ten minutes. What names the awaited state, as in
// "waiting for the Queue to be ready". The condition may end the test.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	err := UntilNil(t.Context(), func() error {
		if condition() {
			return nil
		}
		return errNotYet
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

var errNotYet = errors.New("the condition is false")

// UntilNil waits until check returns nil, for code outside tests, and for checks that explain what is missing. After ten
// minutes, and when ctx ends, it returns the last error of check.
func UntilNil(ctx context.Context, check func() error) error {
	start := time.Now()
	for interval := firstInterval; ; interval = min(2*interval, lastInterval) {
		err := check()
		if err == nil {
			return nil
		}
		waited := time.Since(start)
		if waited >= limit {
			return fmt.Errorf("after %v: %w", waited.Round(time.Second), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w after %v: %w", context.Cause(ctx), waited.Round(time.Second), err)
		case <-time.After(interval):
		}
	}
}
