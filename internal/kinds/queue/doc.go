// Package queue decides what the operator does about a Queue. Decide takes an Observation and returns either the next action on
// the broker or the final status. The controller executes the action, adds its result to the observation and decides again:
//
//	observe ▸ Decide ▸ action? ── yes ▸ execute ▸ Apply ▸ Decide
//	                          └─ no ▸ record the status ▸ act
//
// A Queue that is not deleted takes these actions, each only if necessary:
//
//	add finalizer ▸ read stats ▸ assert fresh ▸ ensure ▸ rescue ▸ read stats ▸ dead-letter request ▸ read stats
//
// The deletion policies order the actions on a deleted Queue:
//
//	Retain   ensure (claims it) ▸ rescue ▸ WorkerPools ▸ dead letters ▸ release
//	Drain    reject messages ▸ rescue ▸ empty? ▸ WorkerPools ▸ dead letters ▸ delete
//	Purge    WorkerPools ▸ reject messages ▸ rescue ▸ dead letters ▸ delete
//
// Each action can be executed twice without harm. An engine refuses to claim, close, release or delete a queue of another
// owner, and the deletion of the Queue is then complete. So only the owner of a queue moves or deletes its dead letters.
//
// An unknown number is never treated as zero. The package has no client, no connection to a broker and no clock. Decide returns
// the state that the next reconciliation needs as a History.
package queue
