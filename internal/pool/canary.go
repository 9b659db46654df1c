package pool

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// advanceCanary moves the updated revision through the canary steps.
func (e *evaluation) advanceCanary(stable *revisionState) {
	history := &e.updated.newHistory
	if failure := e.recordedFailure(); failure != "" && history.FailureMessage == "" {
		history.FailureMessage = failure
		e.replaceWorkers(stable, 0)
		return
	}
	verdict, message := e.analyzeCanary()
	if verdict == canaryFailed {
		history.FailureMessage = message
		e.replaceWorkers(stable, 0)
		return
	}
	if history.CanaryStep < len(e.rollout.Steps) {
		if history.StepReached.IsZero() && e.desired > 0 && e.provenWorkers() >= e.canaryTarget() {
			history.StepReached, history.LastProgress = e.now, e.now
		}
		if !history.StepReached.IsZero() && e.isStepFinished(verdict) {
			history.CanaryStep, history.StepReached = history.CanaryStep+1, time.Time{}
		}
	}
	e.replaceWorkers(stable, e.canaryTarget())
}

// recordedFailure returns the failure of the updated revision that the stored status reports;
// empty if none exists. The status is stored before the revision's history: it counts even
// if the workers that failed have stopped since.
func (e *evaluation) recordedFailure() string {
	before := &e.observation.Pool.Status
	c := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || c.Reason != v1alpha1.ReasonAnalysisFailed || before.UpdatedRevision != e.updated.Name {
		return ""
	}
	return c.Message
}

// canaryTarget is the number of workers of the updated revision in the present step.
func (e *evaluation) canaryTarget() int32 {
	step := e.updated.newHistory.CanaryStep
	if step >= len(e.rollout.Steps) || e.desired == 0 {
		return e.desired
	}
	return min(e.desired, max(1, int32(math.Ceil(float64(e.desired)*float64(e.rollout.Steps[step].Percent)/100))))
}

// isStepFinished reports whether the step that was reached is over: after its pause, or without
// one once the analysis has enough samples.
func (e *evaluation) isStepFinished(verdict canaryVerdict) bool {
	history := &e.updated.newHistory
	if pause := e.rollout.Steps[history.CanaryStep].Pause; pause != nil {
		return e.now.Sub(history.StepReached) >= pause.Duration.Duration
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
func (e *evaluation) analyzeCanary() (verdict canaryVerdict, message string) {
	maxIncrease, minSamples := int32(defaultFailureIncrease), int64(defaultMinSamples)
	if analysis := e.rollout.Analysis; analysis != nil {
		if analysis.MaxFailureRatioIncreasePercent != nil {
			maxIncrease = *analysis.MaxFailureRatioIncreasePercent
		}
		if analysis.MinSamples > 0 {
			minSamples = int64(analysis.MinSamples)
		}
	}
	var updated, old messageOutcomes
	for _, r := range e.revisions {
		if r == e.updated {
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
