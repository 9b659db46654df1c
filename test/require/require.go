// Package require ends tests whose preparation fails.
package require

import "testing"

// NoError ends the test at once if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
