package jobkeys

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// concurrentSends is the number of unique jobs that SendMany sends at a time.
const concurrentSends = 10

// SendMany sends jobs of one queue as SendMany of the producer does, and unique ones as Send.
func SendMany(ctx context.Context, producer broker.Producer, queue string, jobs []*broker.OutgoingJob) []broker.SendResult {
	results := make([]broker.SendResult, len(jobs))
	var others []*broker.OutgoingJob
	var indexes []int
	var sending errgroup.Group
	sending.SetLimit(concurrentSends)
	for i, job := range jobs {
		if !job.IsUnique {
			others, indexes = append(others, job), append(indexes, i)
			continue
		}
		sending.Go(func() (_ error) {
			result, err := Send(ctx, producer, job)
			result.Err = err
			results[i] = result
			return
		})
	}
	if len(others) > 0 {
		for n, result := range producer.SendMany(ctx, queue, others) {
			results[indexes[n]] = result
		}
	}
	_ = sending.Wait() // the errors are in the results
	return results
}
