// Package jobkeys keeps unique keys and batches in the key store of a queue. Package jobstate decides; this package reads
// and writes what it decides, with the same code on every engine.
//
// A producer of a unique job, and the worker that runs it:
//
//	reserve the key ──▶ send the job ──▶ confirm the key          (producer)
//	take the key ──▶ run ──▶ record the end ──▶ release the key ──▶ acknowledge   (worker)
//
// Each arrow may be the last before a crash. A reservation expires soon. A confirmed key is released before its message is
// acknowledged, so a message that ended without releasing its key is delivered again. A worker that receives a job whose
// key another job has gives it back: no accepted job is dropped.
//
// The producer of a batch stores the batch, its jobs, and the final job, in this order. A worker that receives the final job
// gives it back until all others have ended. So the final job is sent once, by its producer, and a batch whose producer died
// before that has none.
package jobkeys
