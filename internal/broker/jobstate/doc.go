// Package jobstate decides what can be said about a single job. It has no
// client and no clock: the engines read and write what it decides.
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
// Each state is a claim of the worker that wrote it. Decide repeats a claim only as long as the broker confirms it: a running
// job whose worker is silent for longer than its lease is unknown, and so is a waiting one whose message is gone.
package jobstate
