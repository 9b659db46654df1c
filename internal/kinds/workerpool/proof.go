package workerpool

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// minProvenIdleTime is how long a worker must be attached without messages, while none waits, before it
// counts as proven.
const minProvenIdleTime = 30 * time.Second

// provenWorkers counts the workers of the updated revision that have proven to work.
func (e *evaluation) provenWorkers() int32 { return e.updated.countWorkers(e.isProven) }

// isProven reports whether a worker of the updated revision has proven to work. It is ready, and so
// attached to each queue. The first ones must also have handled a message successfully, or have been
// idle for a while with nothing waiting and no failure. Once the revision has such a worker, the others
// must only not have failed alone.
//
// A worker that reports nothing proves nothing, except in drain mode Signal, where workers need no
// admin API.
func (e *evaluation) isProven(w *workerState) bool {
	switch {
	case !w.isServing() || !w.IsReady():
		return false
	case e.status.CurrentRevision == e.updated.Name: // a rollback to a revision that served before
		return true
	case w.Stats == nil:
		return e.effective.Drain.Mode == v1alpha1.DrainSignal && e.now.Sub(w.ReadySince) >= minProvenIdleTime
	}
	return e.isProvenByStats(w)
}

// isProvenByStats reports whether a ready worker's stats prove that it works.
func (e *evaluation) isProvenByStats(w *workerState) bool {
	succeeded, failed := ptr.Deref(w.Stats.Succeeded, 0), ptr.Deref(w.Stats.Failed, 0)
	switch {
	case failed > 0 && succeeded == 0:
		return e.comparison.isAlike
	case e.comparison.updated.Failed > 0 && e.comparison.updated.total() < e.analysis().minSamples && !e.isIdleLongEnough(w):
		return false // too few messages to decide, and more to come
	case succeeded > 0, e.updated.newHistory.ProvenWorkers > 0:
		return true
	case w.Stats.Succeeded == nil && w.Stats.InFlight > 0: // it does not count, but takes messages
		return true
	}
	return w.Stats.InFlight+w.Stats.Prefetched == 0 && e.isIdleLongEnough(w)
}

// isIdleLongEnough reports whether nothing has waited for a while since the worker was ready.
func (e *evaluation) isIdleLongEnough(w *workerState) bool {
	since := e.decision.Rollout.QueueEmptySince
	if w.ReadySince.After(since) && !since.IsZero() {
		since = w.ReadySince
	}
	return !since.IsZero() && e.now.Sub(since) >= minProvenIdleTime
}
