package broker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// MaxReconnectDelay is the maximum delay between two attempts to connect.
const MaxReconnectDelay = time.Minute

// ReconnectDelay returns the delay after a number of consecutive failed attempts: half a second, doubled after each attempt, up to
// MaxReconnectDelay, minus a random part of up to half, so that the clients of a broker do not reconnect all at once.
func ReconnectDelay(failures int) time.Duration {
	return reconnectDelay(failures, rand.Float64()) //nolint:gosec // it spreads requests and protects nothing
}

// reconnectDelay expects a jitter from 0 to 1.
func reconnectDelay(failures int, jitter float64) time.Duration {
	delay := MaxReconnectDelay
	if failures < 8 {
		delay = min(MaxReconnectDelay, 250*time.Millisecond<<max(failures, 1))
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
