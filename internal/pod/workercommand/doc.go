// Package workercommand implements `yardmaster worker`, which runs the jobs of queues with programs that do not use the Go package
// worker.
//
// With --forward it sends each job to an HTTP server, usually in the same Pod. With --exec it starts a command for each job. The
// response or exit code decides what happens to the job:
//
//	HTTP status                 exit code        the job
//	2xx                         0                is done
//	429, 503                    75               is retried, after Retry-After if it is set
//	other 4xx                   65               becomes a dead letter
//	5xx, 3xx, timeout           any other        is retried
//	connection refused          cannot start     is snoozed: this is not an attempt
package workercommand
