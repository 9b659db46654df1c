package main

import (
	"container/heap"
)

// timedEvent is a function that runs at a simulated time. Events at the same time run in the
// order in which they were scheduled, so that a seed always gives the same simulation.
type timedEvent struct {
	at    float64
	order int
	do    func()
}

// eventClock runs events in the order of their times.
type eventClock struct {
	now    float64
	events eventHeap
	count  int
}

// scheduleAfter schedules an event after a number of seconds.
func (c *eventClock) scheduleAfter(seconds float64, do func()) {
	c.count++
	heap.Push(&c.events, timedEvent{c.now + seconds, c.count, do})
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
		next, _ := heap.Pop(&c.events).(timedEvent)
		c.now = next.at
		next.do()
	}
	c.now = end
}

type eventHeap []timedEvent

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) {
	e, _ := x.(timedEvent)
	*h = append(*h, e)
}

func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
