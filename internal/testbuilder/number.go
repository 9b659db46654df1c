package testbuilder

import (
	"os"
	"strconv"
	"testing"
)

// Number is what an environment variable says about how much a test does, or else what it
// does every day. A test fails if it says anything but a number from 1.
func Number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a number from 1", variable, text)
	}
	return n
}
