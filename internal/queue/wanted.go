package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// AnnotationSupersedes on a Queue is the UID of another that is gone and yet owns the
// queue on the broker, because it was let go without the broker.
const AnnotationSupersedes = v1alpha1.Prefix + "supersedes"

// BrokerQueueName a Queue on its broker.
func BrokerQueueName(q *v1alpha1.Queue) string { return cmp.Or(q.Spec.Name, q.Name) }

// BrokerQueueOwner the queue that a Queue makes.
func BrokerQueueOwner(q *v1alpha1.Queue) broker.QueueOwner {
	return broker.QueueOwner{UID: string(q.UID), Name: q.Namespace + "/" + q.Name, CreationTime: q.CreationTimestamp.Time}
}

// DesiredQueue is what the queue is to be on its broker.
func DesiredQueue(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) broker.QueueConfig {
	w := broker.DefaultQueueConfig(BrokerQueueName(q))
	w.Owner = BrokerQueueOwner(q)
	w.ReplacesOwnerUID = q.Annotations[AnnotationSupersedes]
	w.Paused = q.Spec.Paused
	w.Priorities = priorities(&q.Spec, w.Priorities)
	w.RateLimit = rateLimit(e.RateLimit)
	set(&w.MaxInFlight, q.Spec.MaxInFlight, func(n int32) int { return int(n) })
	set(&w.MaxBacklog, q.Spec.MaxBacklog, same)
	set(&w.Lease, q.Spec.Lease, span)
	w.Retry = retry(e.Retry, w.Retry)
	if d := e.DeadLetter; d != nil {
		set(&w.DeadLetter.Enabled, d.Enabled, same)
		set(&w.DeadLetter.MaxEntries, d.MaxEntries, same)
		set(&w.DeadLetter.Retention, d.Retention, span)
	}
	if q.Spec.Retention != nil {
		w.MaxAge = q.Spec.Retention.MaxAge.Duration.Duration
	}
	w.Drift = cmp.Or(broker.DriftPolicy(q.Spec.Drift), w.Drift)
	return w
}

// priorities, the most urgent first: with strictPriority that is what weights are for.
func priorities(spec *v1alpha1.QueueSpec, fallback []broker.Priority) []broker.Priority {
	if len(spec.Priorities) == 0 {
		return fallback
	}
	var all []broker.Priority
	for _, p := range spec.Priorities {
		all = append(all, broker.Priority{Name: p.Name, Weight: int(max(p.Weight, 1))})
	}
	if spec.StrictPriority {
		slices.SortStableFunc(all, func(a, b broker.Priority) int { return cmp.Compare(b.Weight, a.Weight) })
	}
	return all
}

func rateLimit(r *v1alpha1.RateLimit) *broker.RateLimit {
	if r == nil {
		return nil
	}
	limit := &broker.RateLimit{Limit: int(r.Limit), Per: time.Second, Burst: int(r.Limit)}
	set(&limit.Per, r.Per, span)
	set(&limit.Burst, r.Burst, func(n int32) int { return int(n) })
	return limit
}

func retry(r *v1alpha1.Retry, w broker.RetryPolicy) broker.RetryPolicy {
	if r == nil {
		return w
	}
	set(&w.MaxAttempts, r.MaxAttempts, func(n int32) int { return int(n) })
	set(&w.InitialDelay, r.InitialDelay, span)
	w.MaxDelay = max(w.MaxDelay, w.InitialDelay)
	set(&w.MaxDelay, r.MaxDelay, span)
	set(&w.MultiplierPercent, r.MultiplierPercent, func(n int32) int { return int(n) })
	set(&w.JitterPercent, r.JitterPercent, func(n int32) int { return int(n) })
	return w
}

// set sets a value to what is given, if anything is.
func set[T, G any](value *T, given *G, as func(G) T) {
	if given != nil {
		*value = as(*given)
	}
}

func same[T any](value T) T { return value }

func span(d v1alpha1.Duration) time.Duration { return d.Duration.Duration }
