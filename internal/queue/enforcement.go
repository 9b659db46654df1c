package queue

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// enforcementOf returns what enforces each field that a Queue uses.
func enforcementOf(q *v1alpha1.Queue, e *v1alpha1.QueueEffective, capabilities broker.Capabilities) map[string]v1alpha1.Enforcement {
	enforcement := map[string]v1alpha1.Enforcement{}
	for field, isUsed := range fieldsInUse(q, e) {
		if capability, known := capabilities[field]; isUsed && known {
			enforcement[string(field)] = apiEnforcement[capability.By]
		}
	}
	return enforcement
}

var apiEnforcement = map[broker.Enforcer]v1alpha1.Enforcement{
	broker.EnforcedByBroker: v1alpha1.EnforcedByBroker,
	broker.EnforcedByWorker: v1alpha1.EnforcedByWorkers,
	broker.NotEnforced:      v1alpha1.EnforcementUnsupported,
}

// fieldsInUse has all fields that engines differ in, and whether a Queue uses them.
func fieldsInUse(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) map[broker.QueueField]bool {
	return map[broker.QueueField]bool{
		broker.FieldLease:       true,
		broker.FieldRetry:       true,
		broker.FieldDeadLetter:  e.DeadLetter == nil || e.DeadLetter.Enabled == nil || *e.DeadLetter.Enabled,
		broker.FieldPriorities:  len(q.Spec.Priorities) > 1,
		broker.FieldMaxInFlight: q.Spec.MaxInFlight != nil,
		broker.FieldMaxBacklog:  q.Spec.MaxBacklog != nil,
		broker.FieldRateLimit:   e.RateLimit != nil,
		broker.FieldMaxAge:      q.Spec.Retention != nil,
		broker.FieldPaused:      true,
		broker.FieldDelayed:     true,
	}
}
