package workerpool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

const (
	// idleInterval is the time between decisions about a pool without workers that does not change.
	idleInterval = 15 * time.Second
	// queueInterval is the time between decisions about a pool without workers whose Queues cannot be used.
	// When one can be used, it triggers a decision earlier.
	queueInterval = time.Minute
	// sourceInterval is the time between reads of the source of a pool without workers. A
	// source sends no notification of its first message.
	sourceInterval = 5 * time.Second
	// refusalInterval is the time after which the operator retries an object that the API
	// server refused.
	refusalInterval = 30 * time.Second
)

// queueReasons are the reasons of problems that end with a change of a Queue or a Policy.
var queueReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonQueueNotReady, v1alpha1.ReasonOwnedByOtherQueue, v1alpha1.ReasonQueuesOnSeveralBrokers,
}

// requeueAfter returns the time until the next decision. Brokers and workers send no
// notification when their stats change, so a pool with workers is polled, also to protect busy ones. The queues of a pool
// without workers send a notification of their first message.
func (e *evaluation) requeueAfter() time.Duration {
	switch {
	case !e.decision.KeepFinalizer:
		return 0
	case e.observation.Refusal != nil:
		return refusalInterval
	case e.isDeleting():
		return scaling.DecisionInterval
	case e.desired > 0 || slices.ContainsFunc(e.revisions, (*revisionState).hasWorkers):
		if e.problem == nil && (e.observation.Pool.Spec.Autoscaling != nil || e.isChanging()) {
			return scaling.DecisionInterval
		}
		return protectionInterval
	}
	return e.requeueWithoutWorkers()
}

// requeueWithoutWorkers returns the time until the next decision about a pool that needs no workers, or cannot
// have any.
func (e *evaluation) requeueWithoutWorkers() time.Duration {
	autoscaled, stats := e.observation.Pool.Spec.Autoscaling != nil, e.observation.Stats
	switch {
	case e.problem != nil && slices.Contains(queueReasons, e.problem.Reason):
		return queueInterval
	case e.problem != nil, autoscaled && (stats == nil || stats.hasMessages()):
		return idleInterval
	case e.observation.Pool.Spec.Source != nil && autoscaled:
		return sourceInterval
	default:
		return 0
	}
}

// isChanging reports whether workers start, stop, or have yet to prove themselves.
func (e *evaluation) isChanging() bool {
	return !e.rolloutComplete || e.decision.changesCluster() || e.status.Draining > 0 ||
		e.status.Ready < e.desired || sumOf(e.revisions, (*revisionState).servingWorkers) != e.desired
}

// hasMessages reports whether messages exist that no notification announces again.
func (s *QueueStats) hasMessages() bool { return s.Backlog+s.InFlight+s.Delayed > 0 }
