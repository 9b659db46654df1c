package asynq

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// What asynq has fixed.
const (
	lease    = 30 * time.Second
	mostKept = 10_000
	daysKept = 90
)

// Capabilities tell who keeps to which field.
func (*Engine) Capabilities() broker.Capabilities {
	return broker.Capabilities{
		broker.FieldLease: {By: broker.NotEnforced, Message: fmt.Sprintf("asynq's leases are always %s", lease)},
		broker.FieldRetry: {
			By: broker.EnforcedByWorker, Message: "a task is tried no more often than its producer said, by MaxRetry",
		},
		broker.FieldMaxInFlight: {By: broker.NotEnforced, Message: "asynq has no bound over all workers; a WorkerPool's concurrency has"},
		broker.FieldMaxBacklog:  {By: broker.NotEnforced, Message: "asynq refuses no producer"},
		broker.FieldDelayed:     {By: broker.EnforcedByWorker, Message: "a task that is due comes up while there is a worker"},
		broker.FieldDeadLetter: {
			By:      broker.EnforcedByBroker,
			Message: fmt.Sprintf("asynq keeps the last %d dead letters, and none for longer than %d days", mostKept, daysKept),
		},
		broker.FieldPaused:     {By: broker.EnforcedByBroker},
		broker.FieldPriorities: {By: broker.NotEnforced, Message: "asynq has no priorities within a queue; have a queue for each"},
		broker.FieldRateLimit:  {By: broker.NotEnforced, Message: "asynq has no rate over all workers"},
		broker.FieldMaxAge:     {By: broker.NotEnforced, Message: "asynq drops no task for its age"},
	}
}

// enforcement is who keeps to which field of one queue.
func (e *Engine) enforcement(q *broker.QueueConfig) broker.Capabilities {
	c := e.Capabilities()
	if q.Lease == lease {
		c[broker.FieldLease] = broker.Enforcement{By: broker.EnforcedByBroker}
	}
	if len(q.Priorities) == 1 {
		c[broker.FieldPriorities] = broker.Enforcement{By: broker.EnforcedByBroker}
	}
	if d := q.DeadLetter; d.MaxEntries > 0 && d.MaxEntries != mostKept || d.Retention > 0 && d.Retention != daysKept*24*time.Hour {
		letters := c[broker.FieldDeadLetter]
		letters.By = broker.NotEnforced
		c[broker.FieldDeadLetter] = letters
	}
	return c
}
