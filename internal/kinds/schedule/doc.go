// Package schedule decides what a Schedule does next: which of its times are due, which of them run and which are missed, and
// which runs are deleted. It has no client, no clock and no I/O, except that time zones may be read from the files of the
// system.
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
package schedule
