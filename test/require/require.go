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
