// Package require ends tests whose preparation or result is not as they need it.
package require

import "testing"

// NoError ends the test at once if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Called has what a call returned, see Call.
type Called[T any] struct {
	value T
	err   error
}

// Call is for a call that must succeed, as in require.Call(os.ReadFile(path)).Succeeds(t).
func Call[T any](value T, err error) Called[T] { return Called[T]{value, err} }

// Succeeds returns the value. It ends the test at once if there is an error.
func (c Called[T]) Succeeds(t testing.TB) T {
	t.Helper()
	NoError(t, c.err)
	return c.value
}
