// Package asynq keeps queues in asynq on Redis or Valkey.
//
// Producers keep using the asynq client, and administrators the asynq tools. Each consumer of a worker runs an asynq server,
// which dequeues tasks, extends their leases and stores their results. The package reads the keys of asynq only where asynq's
// Inspector lacks a value, such as delayed tasks that are due, or needs several requests:
//
//	asynq:{orders}:pending                  ready tasks
//	asynq:{orders}:active, :lease           tasks in flight
//	asynq:{orders}:scheduled, :retry        delayed tasks
//	asynq:{orders}:archived                 dead letters
//	asynq:{orders}:paused                   exists if the queue is paused
//	asynq:{orders}:t:ID                     one task
//	yardmaster:{orders}                     the owner, written by this package
//
// The engine is experimental. An asynq server dequeues as many tasks as it has capacity for, and asynq has no public API to
// pause and resume it, which a worker that drains and resumes needs. So the server uses a Redis client (gatedClient) that
// recognizes asynq's scripts by their keys, and dequeues a task only on request.
package asynq
