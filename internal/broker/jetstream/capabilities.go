package jetstream

import (
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Capabilities tell who keeps to which field.
func (e *Engine) Capabilities() broker.Capabilities {
	c := broker.Capabilities{
		broker.FieldLease:       {By: broker.ByBroker},
		broker.FieldRetry:       {By: broker.ByWorker},
		broker.FieldMaxInFlight: {By: broker.ByBroker},
		broker.FieldMaxBacklog:  {By: broker.ByBroker},
		broker.FieldDelayed:     {By: broker.ByBroker},
		broker.FieldDeadLetter:  {By: broker.ByWorker},
		broker.FieldPaused:      {By: broker.ByBroker},
		broker.FieldPriorities:  {By: broker.ByWorker},
		broker.FieldRateLimit:   {By: broker.ByWorker},
		broker.FieldMaxAge:      {By: broker.ByBroker},
	}
	if !e.schedules() {
		c[broker.FieldDelayed] = broker.Enforcement{
			By: broker.Unsupported, Message: "the server cannot deliver messages later before version " + schedulingServer,
		}
	}
	return c
}

// enforcement is who keeps to which field of one queue.
func (e *Engine) enforcement(q *broker.Queue, scheduling bool) broker.Capabilities {
	c := e.Capabilities()
	if q.MaxBacklog > 0 {
		if scheduling {
			c[broker.FieldMaxBacklog] = broker.Enforcement{
				By: broker.Unsupported,
				Message: "the queue was made without maxBacklog, to deliver messages later: the server cannot take that back " +
					"from a stream, nor have one that does it refuse producers",
			}
		} else {
			c[broker.FieldDelayed] = broker.Enforcement{
				By: broker.Unsupported, Message: "a queue with maxBacklog cannot deliver messages later",
			}
		}
	}
	if q.MaxInFlight > 0 && len(q.Priorities) > 1 {
		c[broker.FieldMaxInFlight] = broker.Enforcement{
			By: broker.ByBroker, Message: "each priority has a part of it, by weight, that the others do not use",
		}
	}
	return c
}
