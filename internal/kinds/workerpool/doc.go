// Package workerpool decides what a WorkerPool does next.
//
// It is pure: from an observation of the WorkerPool, its revisions, its workers, its queues and the time, Decide
// computes the status to record and the actions to take. It has five stages, each a function from values to a value. No
// stage changes what an earlier stage decided:
//
//	fleet    what exists, and the rules that apply to it
//	demand   how many workers the pool should have, and why; package scaling computes the number
//	rollout  which workers have proven to work, and how many of each revision should serve
//	plan     which workers start, drain and stop
//	report   status, conditions, events, and when to decide again
//
// A worker that may have messages in flight is never removed. A worker that is not needed passes through these states:
//
//	          not needed             nothing in flight,
//	serving ─────────────▶ draining ────────────────────▶ removable ─────▶ replicas − 1
//	   ▲                      │      according to the broker
//	   └──────────────────────┘
//	    needed again: undrain
//
// Each state is written on the worker's Pod before the pool acts on it, so that the operator can continue after a
// crash. A removable worker is never undrained, because the workload controller may already be deleting it.
//
// Unknown is never treated as zero: without stats from the broker no worker becomes removable.
package workerpool
