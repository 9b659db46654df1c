// Package sequence decides what a SequentialJob does next.
//
// It is pure: from the object, what was seen of its Jobs, and the time, Decide tells
// the status to record and the actions to take. It holds no client and no clock, and
// refuses to guess: what it needs to know and was not told, it asks for (Question),
// and a Job that a cache does not show is not taken for one that is gone.
//
// A step goes through these phases:
//
//	          start                 Job seen               Complete
//	Pending ────────▶ Starting ──────────────▶ Running ──────────────▶ Succeeded
//	   │ ▲                │ refused               │  │  Failed, lost
//	   │ │ interrupted    ▼                       │  ├───────────────▶ Failed
//	   │ └─────────── Stopping ◀──────────────────┘  │                   ▲
//	   │                  └───── deadlines ──────────┼───────────────────┘
//	   │ an earlier step failed              suspend │ ▲ resume
//	   ▼                                             ▼ │
//	Skipped                                       Suspended
//
// At most one step is Starting, Running, Suspended or Stopping. The next one starts
// only in a pass that also records the outcome of the one before, and that record is
// written under an optimistic lock before the Job is made.
package sequence
