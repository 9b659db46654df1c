package workerpool

import (
	"cmp"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// defaultLease is the lease of messages if the broker does not report one.
const defaultLease = 30 * time.Second

// drainRules determine which workers have finished and can be removed.
type drainRules struct {
	v1alpha1.Drain
	now time.Time
	// stats of the queues; nil if they could not be read.
	stats *QueueStats
	// workers of all revisions.
	workers []Worker
	// isAbandoned is true if a user abandoned draining of a pool that is being deleted.
	isAbandoned bool
}

// canRemove reports whether removing a draining worker loses no message.
func (r *drainRules) canRemove(w *workerState) bool {
	switch {
	case !w.Running && w.Stats == nil, r.isAbandoned:
		return true
	case r.stats == nil:
		return false
	case r.Mode == v1alpha1.DrainSignal, // the removal itself asks the worker to drain
		r.OnTimeout == v1alpha1.DrainRequeue && r.hasTimedOut(w):
		return true
	case w.Stats == nil:
		// Without an answer only the broker's count is known. After a lease it has redelivered
		// the messages of a worker that no longer runs.
		return r.stats.InFlightKnown && r.othersHoldAllInFlight(w) && r.isLeaseOver(w.targetDraining)
	case !w.Stats.Drained || w.Stats.InFlight > 0:
		return false
	default:
		// If the broker's count includes retries, only the worker can say that it has no messages.
		return r.stats.RetriesInFlight || r.othersHoldAllInFlight(w) || !w.targetIdle.IsZero() && r.isLeaseOver(w.targetIdle)
	}
}

// isLeaseOver reports whether the broker has redelivered all messages that were leased then.
func (r *drainRules) isLeaseOver(since time.Time) bool {
	return r.now.Sub(since) >= cmp.Or(max(r.stats.Lease, 0), defaultLease)
}

// othersHoldAllInFlight reports whether the other workers report, including prefetched messages,
// all messages that the broker counts as in flight. The broker may also count messages of workers that no
// longer exist, so the caller accepts a false result only for one lease.
func (r *drainRules) othersHoldAllInFlight(w *workerState) bool {
	others := int64(0)
	for i := range r.workers {
		if other := &r.workers[i]; other.Name != w.Name && other.Stats != nil {
			others += max(other.Stats.InFlight, 0) + max(other.Stats.Prefetched, 0)
		}
	}
	return !r.stats.InFlightKnown || r.stats.InFlight <= others
}

func (r *drainRules) hasTimedOut(w *workerState) bool {
	return !w.targetDraining.IsZero() && r.now.Sub(w.targetDraining) >= r.Timeout.Duration.Duration
}
