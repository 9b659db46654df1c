// Package jobstate decides about the state of a single job. It has no client and no clock: the engines read and write states.
//
//	        no worker has reported an attempt
//	                    │
//	    ┌────────── waiting ◀───────┐ put back, or requeued
//	    │               │           │
//	    │               ▼           │
//	    │            running ───────┤
//	    │               │ ▲         │
//	    │               ▼ │         │
//	    │            retrying       │
//	    ▼               ▼           │
//	canceled        done, dead ─────┘
//
// Each state is a claim of the worker that wrote it. Decide repeats a claim only while the broker confirms it: the state of a running job
// whose worker does not report for longer than its lease is unknown, as is the state of a waiting job whose message no longer exists.
package jobstate
