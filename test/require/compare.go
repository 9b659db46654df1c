package require

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal ends the test at once if the values differ, and prints how.
func Equal[T any](t testing.TB, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Fatalf("values differ (-want +got):\n%s", diff)
	}
}

// Contains ends the test at once if a text lacks a part.
func Contains(t testing.TB, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Fatalf("no %q in:\n%s", part, text)
	}
}

// ErrorContains ends the test at once unless there is an error whose text has the part.
func ErrorContains(t testing.TB, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Fatalf("error %v, want one with %q", err, part)
	}
}

// True ends the test at once unless a condition holds, with a message that says what holds instead.
func True(t testing.TB, holds bool, format string, arguments ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, arguments...)
	}
}
