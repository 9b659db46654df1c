// Package background runs programs beside a test.
package background

import (
	"context"
	"sync"
	"testing"
)

// Run runs a program until stop is called, or the test ends. The test fails if the program returns an error.
func Run(t testing.TB, program func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- program(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
