// Package worker runs the jobs of a queue in a program of yours.
//
// A worker takes jobs, keeps their lease while the handler works on them, and settles
// them by what the handler returns. It keeps to its queues' priorities, retries and rate
// limit, stops taking jobs of a queue where most fail, and is drained before it ends: it
// takes nothing more, gives back what it has not begun, and lets what runs finish.
//
//	func main() {
//		options, err := worker.FromEnvironment()
//		if err != nil { … }
//		err = worker.Run(context.Background(), options, func(ctx context.Context, job *worker.Job) error {
//			return bill(ctx, job.Payload)
//		})
//		…
//	}
//
// Delivery is at least once. A job whose worker is not heard of for the length of its lease
// is given to another, so handlers must bear to be called twice with the same job.
package worker
