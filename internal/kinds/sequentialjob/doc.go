// Package sequentialjob decides what a SequentialJob does next.
//
// It is pure: from the object, its observed Jobs and the time, Decide computes the status to record and the actions to
// take. Facts that the observation does not contain, Decide requests with a Question. For example, it never treats a
// Job that the cache does not show as deleted without a live read.
//
// Its stages are facts → run → progress → archive → report, each a function from values to a value. No stage changes what
// an earlier stage decided:
//
//	facts     what was observed
//	run       the steps and parameters that the spec wants, with the progress that only Jobs show, and whether the run is accepted and admitted
//	progress  for each step until one remains active: its outcome, then what is next
//	  outcome   whether the Job and the Pods of the attempt prove that its work is done, was interrupted, or is lost
//	  next      the Job to create, stop, replace, suspend or resume, or the verdict with which the step ends
//	archive   which run's logs are archived
//	report    status, conditions, events, and when to decide again
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
// A Job is complete also if its Pod was requested to stop and its program exits with 0: the outcome decides whether the step is Succeeded
// or Interrupted, or Lost because nobody saw its Pods end. A step whose own container has ended while another container runs can be
// Stopping too, and is then Succeeded or Failed as its container.
//
// Transitions from Running are also possible from Starting and Queued. At most one step is Starting, Queued, Running,
// Suspending, Suspended or Stopping. The next step starts in the decision about the outcome of the step before it. The record of this
// decision is written under an optimistic lock before the Job is created, unless the Job shows all of it: plain.go says when.
package sequentialjob
