// Package agenticsession decides what an AgenticSession does next.
//
// It is pure: Decide takes the session, its SessionRunner, the observed Jobs and Pods, and the time, and returns the
// status to record and the actions to take. Before it treats a Job that the cache does not contain as deleted, it
// requests a live read.
//
// Its stages are facts → outcome → next → report, each a function from values to a value. No stage changes what an earlier
// stage decided:
//
//	facts    what was observed, and the settings within the limits of the SessionRunner
//	outcome  what the Job and the Pod of the open attempt show: activity, cost, result, and the verdict with which the attempt ends
//	next     the attempt to start, the Job to stop, the objects to create or restore, or the obstacle to wait for
//	report   phase, conditions, events, and when to decide again
//
//	             Job created             runner starts
//	Pending ─────────────────▶ Creating ────────────────▶ Running
//	 ▲ │ ▲ ▲                    │  │ │                    │  │ │
//	 │ │ │ └────── retry ───────┘  │ └── stop ─┐   stop ──┘  │ └──▶ Completed
//	 │ │ │                         │           ▼    │        │          │
//	 │ │ └────── resume ─────── Stopped ◀── Stopping◀        │          │
//	 │ │                           │                         │          │
//	 │ └── refused, missing ───────┴──────────▶ Failed ◀─────┘          │
//	 │                                            │                     │
//	 └────────────── rerun.id changed ────────────┴─────────────────────┘
//
// A queue, or another client, may suspend the Job of Creating and Running sessions, which are Pending until it is
// resumed, in the same attempt.
//
// The status records how attempts ended. The phase is derived each time from these records, the spec, and the Job of
// the open attempt. At most one attempt is open, and status.attempt names its Job before the Job is created.
//
// A session cannot change what its Pod is allowed to do: this package builds the containers
// from a few fields, and the SessionRunner sets the limits.
package agenticsession
