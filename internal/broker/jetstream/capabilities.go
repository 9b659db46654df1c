package jetstream

import (
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Capabilities tell who keeps to which field.
func (e *Engine) Capabilities() broker.Capabilities {
	c := broker.Capabilities{
		broker.FieldLease:       {By: broker.EnforcedByBroker},
		broker.FieldRetry:       {By: broker.EnforcedByWorker},
		broker.FieldMaxInFlight: {By: broker.EnforcedByBroker},
		broker.FieldMaxBacklog:  {By: broker.EnforcedByBroker},
		broker.FieldDelayed:     {By: broker.EnforcedByBroker},
		broker.FieldDeadLetter:  {By: broker.EnforcedByWorker},
		broker.FieldPaused:      {By: broker.EnforcedByBroker},
		broker.FieldPriorities:  {By: broker.EnforcedByWorker},
		broker.FieldRateLimit:   {By: broker.EnforcedByWorker},
		broker.FieldMaxAge:      {By: broker.EnforcedByBroker},
	}
	if !e.supportsSchedules() {
		c[broker.FieldDelayed] = broker.Enforcement{
			By: broker.NotEnforced, Message: "the server cannot deliver messages later before version " + schedulingServerVersion,
		}
	}
	return c
}

// enforcement is who keeps to which field of one queue.
func (e *Engine) enforcement(q *broker.QueueConfig, scheduling bool) broker.Capabilities {
	c := e.Capabilities()
	if q.MaxBacklog > 0 {
		if scheduling {
			c[broker.FieldMaxBacklog] = broker.Enforcement{
				By: broker.NotEnforced,
				Message: "the queue was made without maxBacklog, to deliver messages later: the server cannot take that back " +
					"from a stream, nor have one that does it refuse producers",
			}
		} else {
			c[broker.FieldDelayed] = broker.Enforcement{
				By: broker.NotEnforced, Message: "a queue with maxBacklog cannot deliver messages later",
			}
		}
	}
	if q.MaxInFlight > 0 && len(q.Priorities) > 1 {
		c[broker.FieldMaxInFlight] = broker.Enforcement{
			By: broker.EnforcedByBroker, Message: "each priority has a part of it, by weight, that the others do not use",
		}
	}
	return c
}
