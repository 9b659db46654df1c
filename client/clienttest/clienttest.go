// Package clienttest has queues in memory, for tests of programs that send jobs with package client. They behave as
// queues on NATS JetStream: priorities, limits, deduplication and errors are the same.
//
//	queues := clienttest.New(clienttest.Queue{Name: "mail"})
//	shop := newShop(queues.Connect(client.Options{}))
//	shop.Order(7)
//	if jobs := queues.Jobs("mail"); len(jobs) != 1 { … }
//
// Nothing runs jobs by itself. Run runs those that are due with a handler of package worker, and Advance sets the clock
// ahead, so that delayed jobs are due.
package clienttest

import (
	"context"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/client/internal/construct"
	"github.com/yardmaster/yardmaster/client/internal/runner"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/memory"
	"github.com/yardmaster/yardmaster/worker"
)

// Queue is the configuration of a queue.
type Queue struct {
	Name string
	// Priorities, the most urgent first. The default is one priority, "default".
	Priorities []string
	// MaxBacklog is the number of jobs from which on the queue rejects new ones. 0 means no limit. A queue with a limit
	// delays no jobs.
	MaxBacklog int64
	// MaxAttempts is the number of attempts, including the first. The default is 5.
	MaxAttempts int
	// Results is how long the states of jobs are kept, at least a minute. The default is not at all.
	Results time.Duration
}

// Queues are queues in memory. Their methods are safe for concurrent use.
type Queues struct{ broker *memory.Broker }

// New returns queues. It panics if a configuration is invalid.
func New(queues ...Queue) *Queues {
	q := &Queues{memory.New()}
	for _, queue := range queues {
		config := broker.DefaultQueueConfig(queue.Name)
		config.Owner = broker.QueueOwner{UID: "test", Name: "test/" + queue.Name}
		config.MaxBacklog = queue.MaxBacklog
		if queue.Results != 0 {
			config.Results = broker.ResultsConfig{Retention: queue.Results, MaxBytes: broker.DefaultResultsBytes}
		}
		if queue.MaxAttempts != 0 {
			config.Retry.MaxAttempts = queue.MaxAttempts
		}
		if len(queue.Priorities) > 0 {
			config.Priorities = nil
		}
		for _, name := range queue.Priorities {
			config.Priorities = append(config.Priorities, broker.Priority{Name: name, Weight: 1})
		}
		if _, err := q.broker.EnsureQueue(context.Background(), config); err != nil {
			panic(fmt.Sprintf("clienttest: queue %q: %v", queue.Name, err))
		}
	}
	return q
}

// Connect returns a client of the queues, as client.New does. It ignores Broker and Name of the options, and panics if
// others are invalid.
func (q *Queues) Connect(options client.Options) *client.Client {
	c, err := construct.Client(options, q.broker.Connect(), memory.EngineName, q.broker.Now)
	if err != nil {
		panic(fmt.Sprintf("clienttest: %v", err))
	}
	return c.(*client.Client) //nolint:forcetypeassert // package client returns no other type
}

// Now returns the time of the clock of the queues.
func (q *Queues) Now() time.Time { return q.broker.Now() }

// Advance sets the clock of the queues ahead.
func (q *Queues) Advance(by time.Duration) { q.broker.Advance(by) }

// Drain makes a queue reject new jobs, as one whose Queue is being deleted.
func (q *Queues) Drain(queue string) {
	if err := q.broker.RejectNewMessages(context.Background(), queue, broker.QueueOwner{}); err != nil {
		panic(fmt.Sprintf("clienttest: %v", err))
	}
}

// SetUnavailable makes calls of clients fail with client.ErrUnavailable, or succeed again.
func (q *Queues) SetUnavailable(unavailable bool) { q.broker.SetUnavailable(unavailable) }

// Job is a job that is not done.
type Job struct {
	// ID, Kind, Priority, Payload and Headers are those that its handler receives.
	ID, Kind, Priority string
	Payload            []byte
	Headers            map[string][]string
	// SentTime is when it was sent, DueTime when workers may start it; zero means at once.
	SentTime, DueTime time.Time
	// Attempts is the number of attempts that have failed.
	Attempts int
	// Error is why the last attempt of a dead letter failed.
	Error string
}

// Jobs returns the jobs of a queue that are not done, in the order in which they were sent or failed. It panics if the
// queue does not exist.
func (q *Queues) Jobs(queue string) []Job {
	stored, err := q.broker.Jobs(queue)
	if err != nil {
		panic(fmt.Sprintf("clienttest: %v", err))
	}
	jobs := make([]Job, 0, len(stored))
	for i := range stored {
		s := &stored[i]
		jobs = append(jobs, Job{
			ID: s.ID, Kind: s.Kind, Priority: s.Priority, Payload: s.Payload, Headers: s.Headers, SentTime: s.SentTime, DueTime: s.DueTime,
			Attempts: s.Attempt - 1,
		})
	}
	return jobs
}

// DeadLetters returns the jobs of a queue that are not retried, oldest first.
func (q *Queues) DeadLetters(queue string) []Job {
	var jobs []Job
	for _, letter := range q.broker.DeadLetters(queue) {
		jobs = append(jobs, Job{
			ID: letter.ID, Kind: letter.Kind, Priority: letter.Priority, Payload: letter.Payload, Headers: letter.Headers,
			SentTime: letter.SentTime, Attempts: letter.Attempt, Error: letter.Error,
		})
	}
	return jobs
}

// Run runs the jobs of a queue that are due now, one after the other, the most urgent priority first, and returns the
// number of attempts. Results of the handler have the same effect as in a worker: a job that fails is due again after
// the delay of the default retry policy, without its random part, and is a dead letter after the last attempt. Call
// Advance and Run again for the next attempt. A job that waits for others, because of its unique key or its batch, runs in a later
// call. Timeouts and progress have no effect. A job that is put back without a delay runs
// in the next call.
func (q *Queues) Run(ctx context.Context, queue string, handler worker.Handler) int {
	return runner.Run(ctx, q.broker, queue, handler)
}
