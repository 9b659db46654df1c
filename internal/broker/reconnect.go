package broker

import "time"

// MaxReconnectDelay is the maximum delay between two attempts to connect.
const MaxReconnectDelay = time.Minute

// ReconnectDelay returns the delay after a number of consecutive failed attempts: half a
// second, doubled after each attempt, up to MaxReconnectDelay. Jitter, from 0 to 1,
// subtracts up to half of it, so that clients of one broker do not reconnect all at once.
func ReconnectDelay(failures int, jitter float64) time.Duration {
	delay := MaxReconnectDelay
	if failures < 8 {
		delay = min(MaxReconnectDelay, 250*time.Millisecond<<max(failures, 1))
	}
	return delay - time.Duration(jitter*float64(delay)/2)
}
