// Package session decides what an AgenticSession does next.
//
// It is pure: from the object, its SessionRunner, what was seen of its Jobs and their Pods,
// and the time, Decide tells the status to record and the actions to take. It refuses to
// guess: a Job that a cache does not show is asked for before it is taken for gone.
//
//	                  Job made            runner starts
//	Pending ─────────────────▶ Creating ────────────────▶ Running
//	 ▲ │ ▲ ▲                    │  │ │                    │  │ │
//	 │ │ │ └── to be retried ───┘  │ └── stop ─┐   stop ──┘  │ └──▶ Completed
//	 │ │ │                         │           ▼    │        │          │
//	 │ │ └──── mode Running ─── Stopped ◀── Stopping◀        │          │
//	 │ │                           │                         │          │
//	 │ └── refused, missing ───────┴──────────▶ Failed ◀─────┘          │
//	 │                                            │                     │
//	 └────────────── one more runRequest ─────────┴─────────────────────┘
//
// Only how attempts ended is recorded. The phase is derived anew each time from those
// records, from the spec, and from the Job of the attempt that is open: one that status.job
// names. There is never more than one, and it is named before its Job is made.
//
// What a Pod may do is not the session's to say. Its containers are built here from few
// fields, so that there is nothing to be overridden, and SessionRunner sets the limits.
package session
