package queue

import (
	"fmt"
	"slices"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Warnings are what is right as it stands, and yet may not be what its author expects.
func Warnings(q *v1alpha1.Queue) []string {
	s := &q.Spec
	var all []string
	warn := func(so bool, field, text string) {
		if so {
			all = append(all, "spec."+field+": "+text)
		}
	}
	many := len(s.Priorities) > 1
	warn(onNATS(q) && s.MaxBacklog != nil, "maxBacklog", "NATS cannot deliver messages later in a queue with maxBacklog")
	warn(s.MaxInFlight != nil && many, "maxInFlight", "each priority has a part of it, by weight, that the others do not use")
	warn(s.StrictPriority && many, "strictPriority", "messages of lesser weight may never be taken")
	if d := s.DeadLetter; d != nil {
		warn(d.Enabled != nil && !*d.Enabled, "deadLetter.enabled", "messages that are given up are lost")
		warn(d.MaxEntries != nil && *d.MaxEntries > 0, "deadLetter.maxEntries", "dead letters over that number are lost, the oldest first")
		warn(d.Retention != nil && span(*d.Retention) > 0, "deadLetter.retention", "dead letters of that age are lost")
	}
	return all
}

// UnenforcedFieldWarnings are the fields that nobody will keep to, as far as the engine's capabilities
// tell before the queue is made.
func UnenforcedFieldWarnings(q *v1alpha1.Queue, by broker.Capabilities) []string {
	var all []string
	asked := &v1alpha1.QueueEffective{RateLimit: q.Spec.RateLimit, DeadLetter: q.Spec.DeadLetter}
	for field, used := range fieldsInUse(q, asked) {
		is := by[field]
		if field == broker.FieldLease {
			// What every queue has that asks for nothing else is no wish.
			used = q.Spec.Lease != nil && span(*q.Spec.Lease) != broker.DefaultQueueConfig("").Lease
		}
		if used && is.By == broker.NotEnforced && field != broker.FieldDelayed {
			all = append(all, fmt.Sprintf("spec.%s: nobody keeps to it: %s", field, is.Message))
		}
	}
	slices.Sort(all)
	return all
}

// onNATS tells that the Queue itself says so. A Policy's or the operator's broker is only
// known later: status.enforcement has the outcome.
func onNATS(q *v1alpha1.Queue) bool {
	return q.Spec.Broker != nil && q.Spec.Broker.Engine == v1alpha1.EngineNATS
}

// UpdateWarnings are of a change of the spec.
func UpdateWarnings(before, after *v1alpha1.Queue) []string {
	var all []string
	if onNATS(after) && before.Spec.MaxBacklog == nil && after.Spec.MaxBacklog != nil {
		all = append(all, "spec.maxBacklog: a queue made without it on NATS 2.12 or later takes messages for later, "+
			"and then cannot refuse producers: status.enforcement tells")
	}
	for _, p := range before.Spec.Priorities {
		if !slices.ContainsFunc(after.Spec.Priorities, func(q v1alpha1.QueuePriority) bool { return q.Name == p.Name }) {
			all = append(all, fmt.Sprintf("spec.priorities: %s is kept on the broker until it is empty", p.Name))
		}
	}
	return all
}
