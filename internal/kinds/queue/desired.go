package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// BrokerQueueName returns the name of a Queue on its broker. A name that the status records never changes.
func BrokerQueueName(q *v1alpha1.Queue, clusterID string) string {
	return cmp.Or(q.Status.Name, q.Spec.Name, broker.ScopedQueueName(q.Namespace, q.Name, clusterID))
}

// BrokerQueueOwner returns the owner that a Queue records on the broker.
func BrokerQueueOwner(q *v1alpha1.Queue, clusterID string) broker.QueueOwner {
	return broker.QueueOwner{UID: string(q.UID), Name: q.Namespace + "/" + q.Name, Cluster: clusterID}
}

// DesiredQueue returns the configuration of a queue on its broker.
func DesiredQueue(q *v1alpha1.Queue, e *v1alpha1.QueueEffective, clusterID string) broker.QueueConfig {
	desired := broker.DefaultQueueConfig(BrokerQueueName(q, clusterID))
	desired.Owner = BrokerQueueOwner(q, clusterID)
	desired.AdoptsUnowned = e.Broker != nil || desired.Name == broker.ScopedQueueName(q.Namespace, q.Name, clusterID)
	desired.Paused = q.Spec.Suspend
	if len(q.Spec.Priorities) > 0 {
		desired.Priorities = nil
	}
	for _, p := range q.Spec.Priorities {
		desired.Priorities = append(desired.Priorities, broker.Priority{Name: p.Name, Weight: int(max(p.Weight, 1))})
	}
	if q.Spec.StrictPriority { // the most urgent first
		slices.SortStableFunc(desired.Priorities, func(a, b broker.Priority) int { return cmp.Compare(b.Weight, a.Weight) })
	}
	desired.RateLimit = desiredRateLimit(e.RateLimit)
	setInt(&desired.MaxInFlight, q.Spec.MaxInFlight)
	setInt(&desired.MaxBacklog, q.Spec.MaxBacklog)
	setDuration(&desired.Lease, q.Spec.Lease)
	setDuration(&desired.JobTimeout, q.Spec.MessageTimeout)
	if retry := e.Retry; retry != nil {
		if retry.Limit != nil {
			desired.Retry.MaxAttempts = int(*retry.Limit) + 1 // brokers and workers count attempts
		}
		setDuration(&desired.Retry.InitialDelay, retry.Backoff)
		desired.Retry.MaxDelay = max(desired.Retry.MaxDelay, desired.Retry.InitialDelay)
		setDuration(&desired.Retry.MaxDelay, retry.MaxBackoff)
		desired.Retry.MultiplierPercent = int(math.Round(100 * decision.RetryFactor(retry)))
	}
	if deadLetter := e.DeadLetter; deadLetter != nil {
		desired.DeadLetter.Enabled = keepsDeadLetters(deadLetter)
		setInt(&desired.DeadLetter.MaxEntries, deadLetter.MaxEntries)
		setDuration(&desired.DeadLetter.Retention, deadLetter.Retention)
	}
	setDuration(&desired.MaxAge, q.Spec.MaxAge)
	if results := q.Spec.Results; results != nil {
		desired.Results = broker.ResultsConfig{Retention: toDuration(results.Retention), MaxBytes: broker.DefaultResultsBytes}
		setInt(&desired.Results.MaxBytes, results.MaxBytes)
	}
	desired.Storage = desiredStorage(q.Spec.Storage)
	desired.Drift = cmp.Or(broker.DriftPolicy(q.Spec.Drift), desired.Drift)
	return desired
}

// WorkerPriorities returns the priorities from which workers take messages: those of the spec, and less urgent, with the least weight, removed
// priorities that are still on the broker. The runtime of workers refuses more than broker.MaxPriorities.
func WorkerPriorities(q *v1alpha1.Queue, desired *broker.QueueConfig) []broker.Priority {
	all := slices.Clone(desired.Priorities)
	for _, name := range q.Status.Priorities {
		isKept := slices.ContainsFunc(desired.Priorities, func(p broker.Priority) bool { return p.Name == name })
		if !isKept && len(all) < broker.MaxPriorities {
			all = append(all, broker.Priority{Name: name, Weight: 1})
		}
	}
	return all
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

func desiredStorage(s *v1alpha1.QueueStorage) broker.StorageConfig {
	if s == nil {
		return broker.StorageConfig{}
	}
	storage := broker.StorageConfig{Type: broker.StorageType(s.Type)}
	setInt(&storage.Replicas, s.Replicas)
	if s.Placement != nil {
		storage.Placement = &broker.Placement{Cluster: s.Placement.Cluster, Tags: s.Placement.Tags}
	}
	return storage
}

func keepsDeadLetters(d *v1alpha1.DeadLetter) bool {
	return d == nil || d.MaxEntries == nil || *d.MaxEntries > 0
}

// setInt replaces a default by the value of a spec, if it is set.
func setInt[T int | int64, G int32 | int64](value *T, given *G) {
	if given != nil {
		*value = T(*given)
	}
}

// setDuration replaces a default by the value of a spec, if it is set.
func setDuration(value *time.Duration, given *v1alpha1.Duration) {
	if given != nil {
		*value = given.Duration.Duration
	}
}

func toDuration(d v1alpha1.Duration) time.Duration { return d.Duration.Duration }
