package pool

import (
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

const (
	// idleInterval is the time between decisions about a pool that does not change.
	idleInterval = 15 * time.Second
	// sourceInterval is the time between reads of the source of a pool without workers. A
	// source sends no notification of its first message.
	sourceInterval = 5 * time.Second
	// refusalInterval is the time after which the operator retries an object that the API
	// server refused.
	refusalInterval = 30 * time.Second
)

// requeueAfter returns the time until the next decision. Brokers and workers send no
// notification when their stats change, so a pool with workers is polled. The queues of a pool
// without workers send a notification of their first message.
func (e *evaluation) requeueAfter() time.Duration {
	hasWorkers := e.sumOfRevisions(func(r *revisionState) int32 { return r.totalWorkers() + r.terminating }) > 0
	autoscaled := e.observation.Pool.Spec.Autoscaling != nil
	switch {
	case e.isDeleting() && !e.decision.KeepFinalizer:
		return 0
	case e.observation.Refusal != nil:
		return refusalInterval
	case hasWorkers || e.isDeleting() || e.desired > 0:
		return e.pollInterval(autoscaled)
	case e.problem != nil, autoscaled && (e.observation.Stats == nil || e.hasOutstandingMessages()):
		return idleInterval
	case e.observation.Pool.Spec.Source != nil && autoscaled:
		return sourceInterval
	default:
		return 0
	}
}

// pollInterval returns the time until a pool with workers is polled again.
func (e *evaluation) pollInterval(autoscaled bool) time.Duration {
	if e.problem != nil || !autoscaled && !e.isDeleting() && !e.isChanging() {
		return idleInterval
	}
	return scaling.DecisionInterval
}

// isChanging reports whether workers start, stop, or have yet to prove themselves.
func (e *evaluation) isChanging() bool {
	return !e.rolloutComplete || e.decision.changesCluster() || e.status.Draining > 0 ||
		e.availableWorkers() < e.desired || e.servingWorkers() != e.desired
}

// hasOutstandingMessages reports whether messages exist that no notification announces again.
func (e *evaluation) hasOutstandingMessages() bool {
	stats := e.observation.Stats
	return stats.Backlog+stats.InFlight+stats.Delayed > 0
}
