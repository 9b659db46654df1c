package broker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// maxReconnectDelay is that of the operator, many of whose brokers may not answer.
	maxReconnectDelay = time.Minute
	// maxRetryDelay is that of a worker or a client, whose jobs wait until its broker answers again.
	maxRetryDelay = 5 * time.Second
)

// ReconnectDelay returns the delay after a number of consecutive failed attempts: half a second, doubled after each attempt, up to
// a minute, minus a random part of up to half, so that the clients of a broker do not reconnect all at once.
func ReconnectDelay(failures int) time.Duration {
	return retryDelay(failures, maxReconnectDelay, rand.Float64()) //nolint:gosec // it spreads requests and protects nothing
}

// RetryDelay returns the delay of ReconnectDelay for a program with one broker: up to five seconds.
func RetryDelay(failures int) time.Duration {
	return retryDelay(failures, maxRetryDelay, rand.Float64()) //nolint:gosec // it spreads requests and protects nothing
}

// retryDelay expects a jitter from 0 to 1.
func retryDelay(failures int, longest time.Duration, jitter float64) time.Duration {
	delay := longest
	if failures < 8 {
		delay = min(longest, 250*time.Millisecond<<max(failures, 1))
	}
	return delay - time.Duration(jitter*float64(delay)/2)
}

// IsVersionAtLeast compares the major and minor versions of a server.
func IsVersionAtLeast(version, least string) bool {
	var major, minor, leastMajor, leastMinor int
	_, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor)
	_, leastErr := fmt.Sscanf(least, "%d.%d", &leastMajor, &leastMinor)
	return err == nil && leastErr == nil && (major > leastMajor || major == leastMajor && minor >= leastMinor)
}
