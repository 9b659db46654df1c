// Package jobkeys keeps unique keys and batches in the key store of a queue, with the same code on every engine. Package jobstate decides.
//
// A producer of a unique job, and the worker that runs it:
//
//	reserve the key ──▶ send the job ──▶ confirm the key          (producer)
//	take the key ──▶ run ──▶ record the end ──▶ release the key ──▶ acknowledge   (worker)
//
// Each step may be the last before a crash. A reservation expires soon. A confirmed key is released before its message is acknowledged,
// so a message whose key was not released is delivered again. A worker gives back a job whose key another job has: no accepted job is
// dropped.
//
// The producer of a batch stores the batch, its jobs, and the final job, in this order. A worker that receives the final job gives it back
// until all others have ended. If the producer dies before it sends the final job, the batch has none.
package jobkeys
