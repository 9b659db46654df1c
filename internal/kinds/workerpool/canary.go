package workerpool

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// advanceCanary moves the updated revision through the canary steps.
func (e *evaluation) advanceCanary(stable *revisionState) {
	history, steps := &e.updated.newHistory, e.rollout.Steps
	if step := history.CanaryStep; step < len(steps) {
		if history.StepReached.IsZero() && e.desired > 0 && e.provenWorkers() >= canaryTarget(e.desired, steps, step) {
			history.StepReached, history.LastProgress = e.now, e.now
		}
		if !history.StepReached.IsZero() && e.isStepFinished(&steps[step], e.now.Sub(history.StepReached)) {
			history.CanaryStep, history.StepReached = step+1, time.Time{}
		}
	}
	e.replaceWorkers(stable, canaryTarget(e.desired, steps, history.CanaryStep))
}

// recordedFailure returns the failure of the revision that the stored status reports; empty if
// none exists. The status is stored before the revision's history: it counts even if the workers
// that failed have stopped since.
func recordedFailure(stored *v1alpha1.WorkerPoolStatus, revision string) string {
	c := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || c.Reason != v1alpha1.ReasonAnalysisFailed || stored.UpdatedRevision != revision {
		return ""
	}
	return c.Message
}

// canaryTarget is the number of workers of the updated revision in a step.
func canaryTarget(desired int32, steps []v1alpha1.RolloutStep, step int) int32 {
	if step >= len(steps) || desired == 0 {
		return desired
	}
	return min(desired, max(1, int32(math.Ceil(float64(desired)*float64(steps[step].Percent)/100))))
}

// isStepFinished reports whether a step is over some time after it was reached: after its pause, or
// without one once the analysis has enough samples.
func (e *evaluation) isStepFinished(step *v1alpha1.RolloutStep, elapsed time.Duration) bool {
	if step.Pause != nil {
		return elapsed >= step.Pause.Duration.Duration
	}
	return e.comparison.updated.total() >= e.analysis().minSamples
}
