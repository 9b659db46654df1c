package asynq

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Limits of asynq that are not configurable.
const (
	leaseDuration    = 30 * time.Second
	archiveMaxTasks  = 10_000
	archiveRetention = 90 * 24 * time.Hour
)

// Capabilities implements broker.Engine.
func (*Engine) Capabilities() broker.Capabilities {
	return broker.Capabilities{
		broker.FieldLease:      {By: broker.NotEnforced, Message: fmt.Sprintf("a lease in asynq is always %s", leaseDuration)},
		broker.FieldJobTimeout: {By: broker.EnforcedByWorker, Message: "a task also has the timeout and deadline that its producer sets"},
		broker.FieldRetry: {
			By: broker.EnforcedByWorker, Message: "a task has at most the attempts that its producer allows with MaxRetry",
		},
		broker.FieldMaxInFlight: {
			By: broker.NotEnforced, Message: "asynq has no limit across workers; limit the concurrency of the WorkerPool",
		},
		broker.FieldMaxBacklog: {By: broker.NotEnforced, Message: "asynq cannot reject messages from producers"},
		broker.FieldDelayed:    {By: broker.EnforcedByWorker, Message: "a delayed task becomes ready only while a worker runs"},
		broker.FieldDeadLetter: {
			By: broker.EnforcedByBroker,
			Message: fmt.Sprintf("asynq keeps the last %d dead letters, and deletes each after %d days",
				archiveMaxTasks, archiveRetention/(24*time.Hour)),
		},
		broker.FieldPaused:     {By: broker.EnforcedByBroker},
		broker.FieldPriorities: {By: broker.NotEnforced, Message: "asynq has no priorities within a queue; create a Queue for each"},
		broker.FieldRateLimit:  {By: broker.NotEnforced, Message: "asynq has no rate limit across workers"},
		broker.FieldMaxAge:     {By: broker.NotEnforced, Message: "asynq does not delete old tasks"},
		broker.FieldReplicas: {
			By: broker.NotEnforced, Message: "the configuration of the Redis or Valkey server defines its replicas",
		},
		broker.FieldStorageType: {
			By: broker.NotEnforced, Message: "the configuration of the Redis or Valkey server defines what it stores on disk",
		},
		broker.FieldResults: {
			By: broker.EnforcedByWorker, Message: "only jobs of the client of this project are kept after they are done; other producers set Retention",
		},
		broker.FieldResultsSize: {By: broker.NotEnforced, Message: "asynq does not limit the size of the states that it keeps"},
		broker.FieldPlacement:   {By: broker.NotEnforced, Message: "the Redis or Valkey servers are those of the broker's URL"},
	}
}

// capabilitiesFor returns who enforces the fields of one queue, which may have values that are fixed in asynq.
func (e *Engine) capabilitiesFor(q *broker.QueueConfig) broker.Capabilities {
	c := e.Capabilities()
	if q.Lease == leaseDuration {
		c[broker.FieldLease] = broker.Enforcement{By: broker.EnforcedByBroker}
	}
	if len(q.Priorities) == 1 {
		c[broker.FieldPriorities] = broker.Enforcement{By: broker.EnforcedByBroker}
	}
	if d := q.DeadLetter; d.MaxEntries > 0 && d.MaxEntries != archiveMaxTasks || d.Retention > 0 && d.Retention != archiveRetention {
		deadLetter := c[broker.FieldDeadLetter]
		deadLetter.By = broker.NotEnforced
		c[broker.FieldDeadLetter] = deadLetter
	}
	return c
}
