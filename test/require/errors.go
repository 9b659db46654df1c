package require

import (
	"errors"
	"testing"
)

// ErrorIs ends the test at once unless the error is, or wraps, another one.
func ErrorIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want %v", err, target)
	}
}
