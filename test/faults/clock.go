package faults

import "time"

// Jump returns how far a clock jumps.
func Jump(fault Fault) time.Duration {
	switch fault {
	case HasClockThatJumpsAhead:
		return time.Hour
	case HasClockThatJumpsBack:
		return -time.Hour
	}
	panic("no clock " + string(fault))
}
