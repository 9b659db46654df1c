package queue

import (
	"fmt"
	"slices"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Warnings returns warnings about valid fields whose effect may surprise the author.
func Warnings(q *v1alpha1.Queue) []string {
	spec := &q.Spec
	var warnings []string
	warnIf := func(applies bool, field, text string) {
		if applies {
			warnings = append(warnings, "spec."+field+": "+text)
		}
	}
	hasPriorities := len(spec.Priorities) > 1
	warnIf(specifiesNATS(q) && spec.MaxBacklog != nil, "maxBacklog", "NATS cannot delay messages in a queue with maxBacklog")
	warnIf(spec.MaxInFlight != nil && hasPriorities, "maxInFlight",
		"each priority gets a share by weight, and other priorities cannot use a share that is idle")
	warnIf(spec.StrictPriority && hasPriorities, "strictPriority", "workers may never take messages of lower weight")
	if d := spec.DeadLetter; d != nil {
		warnIf(d.Enabled != nil && !*d.Enabled, "deadLetter.enabled", "messages that exhaust their attempts are deleted")
		warnIf(d.MaxEntries != nil && *d.MaxEntries > 0, "deadLetter.maxEntries", "the oldest dead letters beyond this number are deleted")
		warnIf(d.Retention != nil && toDuration(*d.Retention) > 0, "deadLetter.retention", "dead letters older than this are deleted")
	}
	return warnings
}

// UnenforcedFieldWarnings returns warnings about the fields that nothing enforces, as far as
// the capabilities of the engine show before the queue is created.
func UnenforcedFieldWarnings(q *v1alpha1.Queue, capabilities broker.Capabilities) []string {
	var warnings []string
	effective := &v1alpha1.QueueEffective{RateLimit: q.Spec.RateLimit, DeadLetter: q.Spec.DeadLetter}
	for field, isUsed := range fieldsInUse(q, effective) {
		if field == broker.FieldLease {
			// The API server sets the default, so only another lease is a request.
			isUsed = q.Spec.Lease != nil && toDuration(*q.Spec.Lease) != broker.DefaultQueueConfig("").Lease
		}
		if capability := capabilities[field]; isUsed && capability.By == broker.NotEnforced && field != broker.FieldDelayed {
			warnings = append(warnings, fmt.Sprintf("spec.%s: not enforced: %s", field, capability.Message))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// specifiesNATS reports whether the Queue itself selects the engine NATS. The engine of a
// Policy's or the operator's broker is known only later; see status.enforcement.
func specifiesNATS(q *v1alpha1.Queue) bool {
	return q.Spec.Broker != nil && q.Spec.Broker.Engine == v1alpha1.EngineNATS
}

// UpdateWarnings returns warnings about a change of the spec.
func UpdateWarnings(before, after *v1alpha1.Queue) []string {
	var warnings []string
	if specifiesNATS(after) && before.Spec.MaxBacklog == nil && after.Spec.MaxBacklog != nil {
		warnings = append(warnings, "spec.maxBacklog: NATS 2.12 or later cannot enforce it on a queue that was created without it, "+
			"because such a queue accepts delayed messages: see status.enforcement")
	}
	for _, p := range before.Spec.Priorities {
		isKept := slices.ContainsFunc(after.Spec.Priorities, func(kept v1alpha1.QueuePriority) bool { return kept.Name == p.Name })
		if !isKept {
			warnings = append(warnings, fmt.Sprintf("spec.priorities: %s stays on the broker until it is empty", p.Name))
		}
	}
	return warnings
}
