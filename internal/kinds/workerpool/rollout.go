package workerpool

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Defaults of spec.rollout.
const (
	defaultMaxSurge         = "25%"
	defaultProgressDeadline = 30 * time.Minute
)

// planRollout decides how many workers of each revision should take messages.
func (e *evaluation) planRollout() {
	e.observeRollout()
	history := &e.updated.newHistory
	switch proven := e.provenWorkers(); {
	case e.status.CurrentRevision == e.updated.Name: // a rollback to a revision that served before needs no proof
		history.ProvenWorkers = max(1, history.ProvenWorkers)
	case proven > history.ProvenWorkers:
		history.ProvenWorkers, history.LastProgress = proven, e.now
	}
	if history.FailureMessage == "" {
		history.FailureMessage = e.findFailure()
	}
	stable := stableRevision(e.revisions, e.updated, e.status.CurrentRevision)
	switch {
	case stable == nil, e.isFullyReplaced():
		e.completeRollout()
	case history.FailureMessage != "":
		e.replaceWorkers(stable, 0)
	case e.rollout.Strategy == v1alpha1.RolloutRecreate: // new workers start once no others are left
		e.updated.servingTarget = min(e.updated.servingWorkers(), e.desired)
	case e.rollout.Strategy == v1alpha1.RolloutCanary && e.status.CurrentRevision != e.updated.Name:
		e.advanceCanary(stable)
	default:
		e.replaceWorkers(stable, e.desired)
	}
}

// stableRevision returns the revision that served before the rollout, or else any other
// revision with workers; nil if none exists.
func stableRevision(revisions []*revisionState, updated *revisionState, current string) *revisionState {
	var found *revisionState
	for _, r := range revisions {
		switch {
		case r == updated:
		case r.Name == current:
			return r
		case found == nil && r.totalWorkers() > 0:
			found = r
		}
	}
	return found
}

// isFullyReplaced reports whether the updated revision is proven and has replaced all others.
// Strategy Recreate needs no proof, as the old revision has no workers to return to.
func (e *evaluation) isFullyReplaced() bool {
	recreate := e.rollout.Strategy == v1alpha1.RolloutRecreate
	for _, r := range e.revisions {
		if r != e.updated && (r.totalWorkers() > 0 || recreate && r.terminating > 0) {
			return false
		}
	}
	history := &e.updated.newHistory
	return recreate || history.ProvenWorkers > 0 && history.FailureMessage == "" && e.provenWorkers() >= e.desired
}

// stalledProgress returns the problem of a rollout that exceeded its progress deadline; nil if it
// did not. A rollout of a pool without workers, or one that waits in a canary step, does not.
func (e *evaluation) stalledProgress() *decision.Problem {
	deadline := defaultProgressDeadline
	if e.rollout.ProgressDeadline != nil {
		deadline = e.rollout.ProgressDeadline.Duration.Duration
	}
	last := e.updated.Created
	if e.updated.newHistory.LastProgress.After(last) {
		last = e.updated.newHistory.LastProgress
	}
	if e.desired == 0 || !e.updated.newHistory.StepReached.IsZero() || e.now.Sub(last) <= deadline {
		return nil
	}
	return &decision.Problem{Reason: v1alpha1.ReasonNoProgress, Message: fmt.Sprintf("revision %s has made no progress for %s", e.updated.Name, deadline)}
}

func (e *evaluation) progressMessage() string {
	text := fmt.Sprintf("revision %s: %d of %d workers have proven to work", e.updated.Name, e.provenWorkers(), e.desired)
	if e.rollout.Strategy == v1alpha1.RolloutCanary && e.updated.newHistory.CanaryStep < len(e.rollout.Steps) {
		text += fmt.Sprintf(", step %d of %d", e.updated.newHistory.CanaryStep+1, len(e.rollout.Steps))
	}
	return text
}

// completeRollout makes the updated revision the only one that serves.
func (e *evaluation) completeRollout() {
	e.rolloutComplete = true
	e.status.CurrentRevision = e.updated.Name
	// Set here, the history needs no second write after the revision is created.
	e.updated.newHistory.ProvenWorkers = max(1, e.updated.newHistory.ProvenWorkers)
	e.updated.servingTarget = e.desired
}

// countOrPercent returns a number, or a percentage of the total, rounded up or down. A value that
// the API server should have refused counts as 0.
func countOrPercent(value *intstr.IntOrString, fallback string, total int32, roundUp bool) int32 {
	count, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.Parse(fallback)), int(total), roundUp)
	if err != nil {
		return 0
	}
	return int32(min(max(count, 0), math.MaxInt32))
}

// replaceWorkers moves towards the target number of workers of the updated revision, within
// maxSurge and maxUnavailable. Until the updated revision is proven, it gets only a first batch
// of workers, and the old revision grows if more workers are needed.
func (e *evaluation) replaceWorkers(stable *revisionState, target int32) {
	maxSurge := countOrPercent(e.rollout.MaxSurge, defaultMaxSurge, e.desired, true)
	maxUnavailable := countOrPercent(e.rollout.MaxUnavailable, "0", e.desired, false)
	proven := e.updated.newHistory.ProvenWorkers > 0
	batch := target
	if !proven {
		batch = min(target, max(1, maxSurge))
	}
	// Draining workers count as existing.
	room := max(0, e.desired+maxSurge-sumOf(e.revisions, (*revisionState).totalWorkers))
	serving, undrainable := e.updated.servingWorkers(), e.updated.undrainableWorkers()
	updated := min(target, max(serving, min(batch, serving+max(room, undrainable))))
	room -= max(0, updated-serving-undrainable)

	old := sumOf(e.revisions, (*revisionState).servingWorkers) - serving
	sufficient := max(e.desired-target, e.desired-maxUnavailable-min(e.provenWorkers(), target))
	minimum := e.desired - target
	if !proven {
		minimum = sufficient
	}
	switch {
	case old > sufficient:
		old = sufficient
	case old < minimum:
		old = min(minimum, old+max(room, stable.undrainableWorkers()))
	}
	e.updated.servingTarget = updated
	e.divideOldWorkers(stable, old)
}

// divideOldWorkers divides the old workers among the old revisions, the stable revision first.
func (e *evaluation) divideOldWorkers(stable *revisionState, old int32) {
	stable.servingTarget = old
	others := int32(0)
	for _, r := range e.revisions {
		if r == e.updated || r == stable {
			continue
		}
		// Other revisions serve only while the stable revision has too few workers.
		r.servingTarget = min(r.servingWorkers(), max(0, old-stable.servingWorkers()-others))
		others += r.servingTarget
	}
	stable.servingTarget -= others
}
