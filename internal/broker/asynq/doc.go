// Package asynq keeps queues where asynq keeps them, in Redis or Valkey.
//
// Producers go on to use asynq's client, and people asynq's tools: a Queue says of the
// queue what it may say, and workers take its tasks. What asynq itself does to a task,
// asynq's server does here too: each lane of a worker has one, which starts tasks, extends
// their leases, and stores their end. It is asynq's storage that this package looks
// at directly, where asynq's Inspector does not tell (which delayed tasks are due) or not
// in one answer:
//
//	asynq:{orders}:pending                  tasks that can be taken
//	asynq:{orders}:active, :lease           those with workers
//	asynq:{orders}:scheduled, :retry        those that are to be taken later
//	asynq:{orders}:archived                 the dead letters
//	asynq:{orders}:paused                   is there if nothing may be taken
//	asynq:{orders}:t:ID                     one task
//	yardmaster:{orders}                     whose queue it is: this package's own
//
// An asynq server takes as many tasks as it has room for, and cannot be told to take less
// for a time. A worker that is drained and then resumed needs just that, so the server gets
// its connection through a gate (see gate), which lets a task be taken only for who has
// asked for it, and tells when asynq has settled one.
package asynq
