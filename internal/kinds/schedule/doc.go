// Package schedule decides what a Schedule does next: which of its times are due, which of them run and which are missed, and
// which runs are deleted. It has no client, no clock and no I/O, except that time zones may be read from the files of the
// system.
//
// Decide has four stages, each a function from values to a value. No stage changes what an earlier stage decided:
//
//	facts    the known runs, the timetable in effect and that of the spec
//	times    which runs ended in failure, in a row; which times start or are missed, of the timetable and of a request, by
//	         spec.when too; and why a time waits
//	plan     which runs are created and deleted
//	report   status, conditions, events, and when to decide again
//
// The state of a Schedule is lastScheduleTime, the last decided time, and pending, a decided time whose run is being created:
//
//	            due, and may start: record lastScheduleTime and pending
//	idle ───────────────────────────────────────────────────────────────▶ pending
//	 ▲  │ due, and may not start: record lastScheduleTime, count as missed   │
//	 │  └──────────────▶ idle                                               │
//	 └──────────────────────────────────────────────────────────────────────┘
//	            the run exists, under a name that is derived from its time: count it
//
// Both are written over the version that was read, and lastScheduleTime only moves forward. So each time is decided once,
// whatever crashes or conflicts happen in between: an operator that finds a pending time creates its run, or finds that the run
// exists.
//
// A request has a last decided time of its own, and shares pending: at most one run is being created. So a requested run and a run
// of the timetable know of each other before the API server shows them.
package schedule
