package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// AnnotationSupersedes on a Queue is the UID of a removed Queue that still owns the queue on the
// broker, because it was removed without the broker. The annotated Queue takes the queue over.
const AnnotationSupersedes = v1alpha1.Prefix + "supersedes"

// BrokerQueueName returns the name of a Queue on its broker.
func BrokerQueueName(q *v1alpha1.Queue) string { return cmp.Or(q.Spec.Name, q.Name) }

// BrokerQueueOwner returns the owner that a Queue records on the broker.
func BrokerQueueOwner(q *v1alpha1.Queue) broker.QueueOwner {
	return broker.QueueOwner{UID: string(q.UID), Name: q.Namespace + "/" + q.Name, CreationTime: q.CreationTimestamp.Time}
}

// DesiredQueue returns the configuration that a queue has to have on its broker.
func DesiredQueue(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) broker.QueueConfig {
	desired := broker.DefaultQueueConfig(BrokerQueueName(q))
	desired.Owner = BrokerQueueOwner(q)
	desired.ReplacesOwnerUID = q.Annotations[AnnotationSupersedes]
	desired.Paused = q.Spec.Paused
	desired.Priorities = desiredPriorities(&q.Spec, desired.Priorities)
	desired.RateLimit = desiredRateLimit(e.RateLimit)
	setInt(&desired.MaxInFlight, q.Spec.MaxInFlight)
	setInt(&desired.MaxBacklog, q.Spec.MaxBacklog)
	setDuration(&desired.Lease, q.Spec.Lease)
	desired.Retry = desiredRetry(e.Retry, desired.Retry)
	if deadLetter := e.DeadLetter; deadLetter != nil {
		desired.DeadLetter.Enabled = isEnabled(deadLetter)
		setInt(&desired.DeadLetter.MaxEntries, deadLetter.MaxEntries)
		setDuration(&desired.DeadLetter.Retention, deadLetter.Retention)
	}
	if q.Spec.Retention != nil {
		desired.MaxAge = toDuration(q.Spec.Retention.MaxAge)
	}
	desired.Drift = cmp.Or(broker.DriftPolicy(q.Spec.Drift), desired.Drift)
	return desired
}

// desiredPriorities sorts strict priorities by weight, the most urgent first.
func desiredPriorities(spec *v1alpha1.QueueSpec, defaults []broker.Priority) []broker.Priority {
	if len(spec.Priorities) == 0 {
		return defaults
	}
	var priorities []broker.Priority
	for _, p := range spec.Priorities {
		priorities = append(priorities, broker.Priority{Name: p.Name, Weight: int(max(p.Weight, 1))})
	}
	if spec.StrictPriority {
		slices.SortStableFunc(priorities, func(a, b broker.Priority) int { return cmp.Compare(b.Weight, a.Weight) })
	}
	return priorities
}

func desiredRateLimit(r *v1alpha1.RateLimit) *broker.RateLimit {
	if r == nil {
		return nil
	}
	limit := &broker.RateLimit{Limit: int(r.Limit), Per: time.Second, Burst: int(r.Limit)}
	setDuration(&limit.Per, r.Per)
	setInt(&limit.Burst, r.Burst)
	return limit
}

func desiredRetry(r *v1alpha1.Retry, retry broker.RetryPolicy) broker.RetryPolicy {
	if r == nil {
		return retry
	}
	setInt(&retry.MaxAttempts, r.MaxAttempts)
	setDuration(&retry.InitialDelay, r.InitialDelay)
	retry.MaxDelay = max(retry.MaxDelay, retry.InitialDelay)
	setDuration(&retry.MaxDelay, r.MaxDelay)
	setInt(&retry.MultiplierPercent, r.MultiplierPercent)
	setInt(&retry.JitterPercent, r.JitterPercent)
	return retry
}

// isEnabled reports whether dead letters are kept, as they are by default.
func isEnabled(d *v1alpha1.DeadLetter) bool { return d == nil || d.Enabled == nil || *d.Enabled }

// setInt replaces a default by the value that a spec gives, if it gives one.
func setInt[T int | int64, G int32 | int64](value *T, given *G) {
	if given != nil {
		*value = T(*given)
	}
}

// setDuration replaces a default by the value that a spec gives, if it gives one.
func setDuration(value *time.Duration, given *v1alpha1.Duration) {
	if given != nil {
		*value = given.Duration.Duration
	}
}

func toDuration(d v1alpha1.Duration) time.Duration { return d.Duration.Duration }
