// Package workerpool decides what a WorkerPool does next.
//
// It is pure: from an observation of the WorkerPool, its revisions, its workers, its queues and
// the time, Decide computes the status to record and the actions to take. Package scaling
// computes the number of workers. This package decides which revision they belong to, and in
// which order they start and stop.
//
// A worker that may have messages in flight is never removed. A worker that is not needed
// moves through these states:
//
//	          not needed             nothing in flight,
//	serving ─────────────▶ draining ────────────────────▶ removable ─────▶ replicas − 1
//	   ▲                      │      according to the broker
//	   └──────────────────────┘
//	    needed again: undrain
//
// Each state is written on the worker's Pod before the pool acts on it, so the operator can
// continue after a crash. A removable worker is never undrained: the workload controller may
// already be deleting it.
//
// Unknown is never treated as zero: without stats from the broker no worker becomes removable.
package workerpool
