package faults

import "time"

// Script returns the text of sh -c that behaves so. It prints a line when it is ready for SIGTERM.
func Script(fault Fault) string {
	// A shell runs a trap only after its foreground command has ended.
	const untilStopped = `echo started; sleep 3600 & wait; wait`
	switch fault {
	case ExitsWithZero:
		return `trap 'kill $!; exit 0' TERM; ` + untilStopped
	case ExitsWithAnotherCode:
		return `trap 'kill $!; exit 3' TERM; ` + untilStopped
	case IgnoresSIGTERM:
		return `trap '' TERM; ` + untilStopped
	}
	panic("no script " + string(fault))
}

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
