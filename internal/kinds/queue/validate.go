package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Validate returns the errors of a spec that no rule of the CRD finds. It leaves out fields that a Policy may complete, such as
// retry, because only their effective values can be checked.
func Validate(q *v1alpha1.Queue) field.ErrorList {
	desired := DesiredQueue(q, &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{RateLimit: q.Spec.RateLimit}}, broker.ClusterID("any"))
	if desired.Owner.UID == "" {
		desired.Owner.UID = "unassigned" // the API server assigns it after admission
	}
	// The fields of the joined errors have the names of the spec's fields.
	var all field.ErrorList
	if joined, ok := desired.Validate().(interface{ Unwrap() []error }); ok {
		for _, problem := range joined.Unwrap() {
			path, detail, _ := strings.Cut(problem.Error(), " ")
			all = append(all, field.Invalid(field.NewPath("spec", strings.Split(path, ".")...), field.OmitValueType{}, detail))
		}
	}
	return all
}

const asynqWarning = "Asynq is experimental: it depends on how asynq stores its tasks, which asynq may change"

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
	warnIf(specifiesEngine(q, v1alpha1.EngineAsynq), "broker.engine", asynqWarning)
	warnIf(spec.MaxInFlight != nil && hasPriorities, "maxInFlight",
		"each priority gets a share by weight, and other priorities cannot use a share that is idle")
	warnIf(spec.StrictPriority && hasPriorities, "strictPriority", "workers may never take messages of lower weight")
	if d := spec.DeadLetter; d != nil {
		warnIf(!keepsDeadLetters(d), "deadLetter.maxEntries", "messages that exhaust their attempts are deleted")
		warnIf(ptr.Deref(d.MaxEntries, 0) > 0, "deadLetter.maxEntries", "the oldest dead letters beyond this number are deleted")
		warnIf(d.Retention != nil && toDuration(*d.Retention) > 0, "deadLetter.retention", "dead letters older than this are deleted")
	}
	if s := spec.Storage; s != nil {
		warnIf(s.Replicas != nil && *s.Replicas == 1, "storage.replicas", "the messages are lost with the only server that stores them")
		warnIf(s.Type == v1alpha1.StorageMemory, "storage.type", "the messages are lost when all servers that store them restart")
	}
	return warnings
}

// UnenforcedFieldWarnings returns warnings about the fields that nothing enforces, as far as the engine's capabilities show it
// before the queue is created.
func UnenforcedFieldWarnings(q *v1alpha1.Queue, capabilities broker.Capabilities) []string {
	var warnings []string
	effective := &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{RateLimit: q.Spec.RateLimit, DeadLetter: q.Spec.DeadLetter}}
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

// specifiesEngine reports whether the Queue itself selects the engine. The engine of a Policy's
// or the operator's broker is known only later; see status.engine and the condition ConfigSynced.
func specifiesEngine(q *v1alpha1.Queue, engine v1alpha1.Engine) bool {
	return q.Spec.Broker != nil && q.Spec.Broker.Engine == engine
}

// UpdateWarnings returns warnings about a change of the spec.
func UpdateWarnings(before, after *v1alpha1.Queue) []string {
	var warnings []string
	for _, p := range before.Spec.Priorities {
		isKept := slices.ContainsFunc(after.Spec.Priorities, func(kept v1alpha1.QueuePriority) bool { return kept.Name == p.Name })
		if !isKept {
			warnings = append(warnings, fmt.Sprintf("spec.priorities: %s stays on the broker until it is empty", p.Name))
		}
	}
	return warnings
}

// unenforcedFields returns the fields of the spec that nothing enforces. Missing capabilities that no field requests, such as
// delayed messages, are not among them.
func unenforcedFields(o *Observation, result *broker.EnsureResult) []string {
	var missing []string
	for field, isUsed := range fieldsInUse(o.Queue, &o.Effective) {
		capability := result.Enforcement[field]
		if !isUsed || capability.By != broker.NotEnforced || field == broker.FieldDelayed {
			continue
		}
		name := string(field)
		if capability.Message != "" {
			name += " (" + capability.Message + ")"
		}
		missing = append(missing, name)
	}
	slices.Sort(missing)
	return missing
}

// fieldsInUse returns all fields that not all engines enforce, and whether a Queue uses them.
func fieldsInUse(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) map[broker.QueueField]bool {
	storage, results := cmp.Or(q.Spec.Storage, &v1alpha1.QueueStorage{}), cmp.Or(q.Spec.Results, &v1alpha1.Results{})
	return map[broker.QueueField]bool{
		broker.FieldLease:       true,
		broker.FieldJobTimeout:  q.Spec.MessageTimeout != nil,
		broker.FieldRetry:       true,
		broker.FieldDeadLetter:  keepsDeadLetters(e.DeadLetter),
		broker.FieldPriorities:  len(q.Spec.Priorities) > 1,
		broker.FieldMaxInFlight: q.Spec.MaxInFlight != nil,
		broker.FieldMaxBacklog:  q.Spec.MaxBacklog != nil,
		broker.FieldRateLimit:   e.RateLimit != nil,
		broker.FieldMaxAge:      q.Spec.MaxAge != nil,
		broker.FieldReplicas:    storage.Replicas != nil,
		broker.FieldStorageType: storage.Type != "",
		broker.FieldPlacement:   storage.Placement != nil,
		broker.FieldResults:     q.Spec.Results != nil,
		broker.FieldResultsSize: results.MaxBytes != nil,
		broker.FieldPaused:      true,
		broker.FieldDelayed:     true,
	}
}
