package main

import (
	"container/heap"
)

// event is something that happens at a time. Of two at the same time the one that was
// planned first happens first, so that a seed makes the same run each time.
type event struct {
	at    float64
	order int
	do    func()
}

// clock runs events in the order of their times.
type clock struct {
	now    float64
	events eventHeap
	count  int
}

// after plans an event in so many seconds.
func (c *clock) after(seconds float64, do func()) {
	c.count++
	heap.Push(&c.events, event{c.now + seconds, c.count, do})
}

// every plans an event for each so many seconds, the first of them after offset.
func (c *clock) every(seconds, offset float64, do func()) {
	c.after(offset, func() {
		do()
		c.every(seconds, seconds, do)
	})
}

// run lets time pass until the end.
func (c *clock) run(end float64) {
	for len(c.events) > 0 && c.events[0].at <= end {
		next, _ := heap.Pop(&c.events).(event)
		c.now = next.at
		next.do()
	}
	c.now = end
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) {
	e, _ := x.(event)
	*h = append(*h, e)
}

func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
