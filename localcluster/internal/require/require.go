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

// True ends the test at once unless a condition holds, with a message that says what holds instead.
func True(t testing.TB, holds bool, format string, arguments ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, arguments...)
	}
}
