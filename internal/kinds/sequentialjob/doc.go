// Package sequentialjob decides what a SequentialJob does next.
//
// It is pure: from the object, its observed Jobs and the time, Decide computes the status to
// record and the actions to take. It has no client and no clock, and it does not guess: what it
// needs to know and was not given, it requests with a Question. A Job that a cache does not show
// may still exist, so Decide never treats it as deleted without an answer.
//
// A step has one of these phases:
//
//	         start             Pod runs            Job complete
//	Pending ───────▶ Starting ──────────▶ Running ─────────────▶ Succeeded
//	   │             ▲  │ a queue holds      │ Job failed or lost
//	   │             │  ▼ the Job            ├─────────────────▶ Failed
//	   │            Queued                   │ deadline exceeded   ▲
//	   │                                     ├─────▶ Stopping ─────┘
//	   │ an earlier                          │ suspended
//	   │ step failed                         ├─────▶ Suspended ──▶ Starting
//	   ▼                                     ├─────▶ Suspending ─▶ Interrupted ─┐
//	Skipped                       Job lost   └─────▶ Lost ──────────────────────┴─▶ Starting (next attempt)
//
// What leads away from Running also leads away from Starting and Queued. At most one step is
// Starting, Queued, Running, Suspending, Suspended or Stopping. The next step starts
// in the same decision that records the outcome of the step before it, and that record is
// written under an optimistic lock before the Job is created.
package sequentialjob
