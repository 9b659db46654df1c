package jetstream

import (
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Capabilities implements broker.Engine.
func (e *Engine) Capabilities() broker.Capabilities {
	c := broker.Capabilities{
		broker.FieldLease:       {By: broker.EnforcedByBroker},
		broker.FieldJobTimeout:  {By: broker.EnforcedByWorker},
		broker.FieldRetry:       {By: broker.EnforcedByWorker},
		broker.FieldMaxInFlight: {By: broker.EnforcedByBroker},
		broker.FieldMaxBacklog:  {By: broker.EnforcedByBroker},
		broker.FieldDelayed:     {By: broker.EnforcedByBroker},
		broker.FieldDeadLetter:  {By: broker.EnforcedByWorker},
		broker.FieldPaused:      {By: broker.EnforcedByBroker},
		broker.FieldPriorities:  {By: broker.EnforcedByWorker},
		broker.FieldRateLimit:   {By: broker.EnforcedByWorker},
		broker.FieldMaxAge:      {By: broker.EnforcedByBroker},
		broker.FieldReplicas:    {By: broker.EnforcedByBroker},
		broker.FieldStorageType: {By: broker.EnforcedByBroker},
		broker.FieldPlacement:   {By: broker.EnforcedByBroker},
		broker.FieldResults:     {By: broker.EnforcedByWorker},
		broker.FieldResultsSize: {By: broker.EnforcedByBroker},
	}
	if !e.supportsDelays() {
		c[broker.FieldDelayed] = broker.Enforcement{
			By: broker.NotEnforced, Message: "the server supports delayed messages from version " + delayingServerVersion,
		}
	}
	return c
}

func (e *Engine) enforcement(q *broker.QueueConfig) broker.Capabilities {
	c := e.Capabilities()
	if q.MaxInFlight > 0 && len(q.Priorities) > 1 {
		c[broker.FieldMaxInFlight] = broker.Enforcement{
			By: broker.EnforcedByBroker, Message: "each priority has a share by weight, which the others cannot use",
		}
	}
	return c
}
