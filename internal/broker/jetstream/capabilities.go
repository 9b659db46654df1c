package jetstream

import (
	"maps"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The capabilities of servers with and without delayed messages. Many queues share these maps, so nobody changes them.
var (
	capabilities  = newCapabilities(broker.Enforcement{By: broker.EnforcedByBroker})
	withoutDelays = newCapabilities(broker.Enforcement{
		By: broker.NotEnforced, Message: "the server supports delayed messages from version " + delayingServerVersion,
	})
)

func newCapabilities(delayed broker.Enforcement) broker.Capabilities {
	return broker.Capabilities{
		broker.FieldLease:       {By: broker.EnforcedByBroker},
		broker.FieldJobTimeout:  {By: broker.EnforcedByWorker},
		broker.FieldRetry:       {By: broker.EnforcedByWorker},
		broker.FieldMaxInFlight: {By: broker.EnforcedByBroker},
		broker.FieldMaxBacklog:  {By: broker.EnforcedByBroker},
		broker.FieldDelayed:     delayed,
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
}

// Capabilities implements broker.Engine.
func (e *Engine) Capabilities() broker.Capabilities {
	if !e.supportsDelays() {
		return withoutDelays
	}
	return capabilities
}

func (e *Engine) enforcement(q *broker.QueueConfig) broker.Capabilities {
	c := e.Capabilities()
	if q.MaxInFlight > 0 && len(q.Priorities) > 1 {
		c = maps.Clone(c)
		c[broker.FieldMaxInFlight] = broker.Enforcement{
			By: broker.EnforcedByBroker, Message: "each priority has a share by weight, which the others cannot use",
		}
	}
	return c
}
