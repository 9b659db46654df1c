// Package workercommand is `yardmaster worker`: the runtime of package worker for jobs
// that are not worked on by a Go program.
//
// With --forward each job is sent to an HTTP server beside it, with --exec each is a
// process of its own. What becomes of the job follows from the answer:
//
//	HTTP status                 exit code        the job
//	2xx                         0                is done
//	429, 503                    75               is tried again, after Retry-After if it is there
//	other 4xx                   65               becomes a dead letter
//	5xx, 3xx, no answer in time any other        is tried again
//	nobody listens              cannot start     is given back: that was no attempt
package workercommand
