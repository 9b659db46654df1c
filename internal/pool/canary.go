package pool

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of rollout.analysis.
const (
	defaultFailureIncrease = 5
	defaultMinSamples      = 20
)

// advanceCanary moves the updated revision through the canary steps.
func (e *evaluation) advanceCanary(stable *revisionState) {
	history, steps := &e.updated.newHistory, e.rollout.Steps
	verdict, message := analyzeCanary(e.revisions, e.updated, ptr.Deref(e.rollout.Analysis, v1alpha1.RolloutAnalysis{}))
	if failure := recordedFailure(&e.observation.Pool.Status, e.updated.Name); failure != "" {
		verdict, message = canaryFailed, failure
	}
	if verdict == canaryFailed {
		history.FailureMessage = message
		e.replaceWorkers(stable, 0)
		return
	}
	if step := history.CanaryStep; step < len(steps) {
		if history.StepReached.IsZero() && e.desired > 0 && e.updated.provenWorkers(e.now) >= canaryTarget(e.desired, steps, step) {
			history.StepReached, history.LastProgress = e.now, e.now
		}
		if !history.StepReached.IsZero() && isStepFinished(&steps[step], e.now.Sub(history.StepReached), verdict) {
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
func isStepFinished(step *v1alpha1.RolloutStep, elapsed time.Duration, verdict canaryVerdict) bool {
	if step.Pause != nil {
		return elapsed >= step.Pause.Duration.Duration
	}
	return verdict == canaryPassed
}

// canaryVerdict is the result of the analysis of a canary.
type canaryVerdict int

const (
	// canaryUndecided means that too few messages were handled.
	canaryUndecided canaryVerdict = iota
	canaryPassed
	canaryFailed
)

// analyzeCanary compares the failure ratio of the updated revision with that of the others. The
// message explains a failure.
func analyzeCanary(revisions []*revisionState, updatedRevision *revisionState, analysis v1alpha1.RolloutAnalysis) (verdict canaryVerdict, message string) {
	maxIncrease := ptr.Deref(analysis.MaxFailureRatioIncreasePercent, defaultFailureIncrease)
	minSamples := cmp.Or(int64(analysis.MinSamples), defaultMinSamples)
	var updated, old messageOutcomes
	for _, r := range revisions {
		if r == updatedRevision {
			updated.addRevision(r)
		} else {
			old.addRevision(r)
		}
	}
	switch {
	case updated.total() < minSamples:
		return canaryUndecided, ""
	case updated.failureRatio()-old.failureRatio() > float64(maxIncrease)/100:
		return canaryFailed, fmt.Sprintf("%s: %.1f %% of its %d messages failed, compared to %.1f %% before",
			v1alpha1.ReasonAnalysisFailed, 100*updated.failureRatio(), updated.total(), 100*old.failureRatio())
	default:
		return canaryPassed, ""
	}
}

// messageOutcomes counts the messages that workers handled.
type messageOutcomes struct{ succeeded, failed int64 }

// addRevision adds the counts that the revision's workers report.
func (o *messageOutcomes) addRevision(r *revisionState) {
	for _, w := range r.workers {
		if w.Stats != nil && w.Stats.Succeeded != nil && w.Stats.Failed != nil {
			o.succeeded += max(*w.Stats.Succeeded, 0)
			o.failed += max(*w.Stats.Failed, 0)
		}
	}
}

func (o *messageOutcomes) total() int64 { return o.succeeded + o.failed }

// failureRatio is between 0 and 1; 0 without messages.
func (o *messageOutcomes) failureRatio() float64 {
	if o.total() == 0 {
		return 0
	}
	return float64(o.failed) / float64(o.total())
}
