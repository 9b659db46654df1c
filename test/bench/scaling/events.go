package main

import "slices"

// timedEvent is a function that runs at a simulated time.
type timedEvent struct {
	at float64
	do func()
}

// eventClock runs events in the order of their times, and those of the same time in the order in which they were scheduled, so that a seed
// always gives the same simulation.
type eventClock struct {
	now    float64
	events []timedEvent
}

// scheduleAfter schedules an event after a number of seconds.
func (c *eventClock) scheduleAfter(seconds float64, do func()) {
	event := timedEvent{c.now + seconds, do}
	i, _ := slices.BinarySearchFunc(c.events, event.at, func(other timedEvent, at float64) int {
		if other.at <= at {
			return -1
		}
		return 1
	})
	c.events = slices.Insert(c.events, i, event)
}

// scheduleEvery schedules a periodic event, the first time after offset.
func (c *eventClock) scheduleEvery(seconds, offset float64, do func()) {
	c.scheduleAfter(offset, func() {
		do()
		c.scheduleEvery(seconds, seconds, do)
	})
}

// runUntil runs the events until the end.
func (c *eventClock) runUntil(end float64) {
	for len(c.events) > 0 && c.events[0].at <= end {
		next := c.events[0]
		c.now, c.events = next.at, c.events[1:]
		next.do()
	}
	c.now = end
}
