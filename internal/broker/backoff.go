package broker

import "time"

// MaxReconnectDelay is the longest time between two tries to reach a broker.
const MaxReconnectDelay = time.Minute

// ReconnectDelay is how long to wait after that many tries in a row that failed: from half a
// second, doubling, to MaxBackoff. Spread, from 0 to 1, takes up to half of it away, so
// that many who lost the same broker do not come back all at once.
func ReconnectDelay(tries int, spread float64) time.Duration {
	delay := MaxReconnectDelay
	if tries < 8 {
		delay = min(MaxReconnectDelay, 250*time.Millisecond<<max(tries, 1))
	}
	return delay - time.Duration(spread*float64(delay)/2)
}
