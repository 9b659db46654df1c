// Package pool decides what a WorkerPool does next.
//
// It is pure: from the object, what was seen of its revisions, its workers and its queues,
// and the time, Decide tells the status to record and the actions to take. How many
// workers there shall be it asks package scaling; the rest is its own: which revision they
// are of, and in which order they come and go.
//
// No worker is removed that may be at work. On the way out it goes through
//
//	          chosen                 nothing in flight,         seen by all
//	serving ─────────▶ draining ───────────────────────▶ leaving ──────────▶ replicas − 1
//	   ▲                   │         as the broker says
//	   └───────────────────┘
//	     wanted again: /resume
//
// Where a worker stands is written on its Pod before anything is done about it, so any pass
// may be the first one after a crash. A leaving worker is never called back: whoever removes
// Pods may already be at it.
//
// What is not known is never taken for nothing: without figures from the broker no
// worker leaves.
package pool
