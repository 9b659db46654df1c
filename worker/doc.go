// Package worker runs the jobs of queues in a Go program.
//
// A worker takes messages from its queues and calls a handler for each of them. While the handler runs, the worker extends the message's
// lease; afterwards it settles the message according to the handler's result. Workers follow the priorities, retry policy and rate limit of
// each queue, and a circuit breaker stops them from taking jobs of a queue whose jobs keep failing.
//
//	func main() {
//		options, err := worker.FromEnvironment()
//		if err != nil { … }
//		err = worker.Run(context.Background(), options, func(ctx context.Context, job *worker.Job) error {
//			return chargeCustomer(ctx, job.Payload)
//		})
//		…
//	}
//
// For a queue with several kinds of jobs, use a Mux. It calls the handler of each kind with its arguments, and limits the concurrency, the
// time and the attempts of each kind.
//
// On SIGTERM the worker drains: it takes no more messages, gives back messages that have not started, and waits for running jobs to finish.
//
// Delivery is at least once. If a worker does not extend the lease of a message in time, the broker delivers the message to another worker.
// Handlers must therefore be idempotent.
package worker
