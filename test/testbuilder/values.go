package testbuilder

import (
	"os"
	"strconv"
	"testing"
)

// NumberFromEnv returns the value of an environment variable that scales a test, or the default if it is
// unset. The test fails if the value is not a positive number.
func NumberFromEnv(t *testing.T, variable string, defaultNumber int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return defaultNumber
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a positive number", variable, text)
	}
	return n
}
