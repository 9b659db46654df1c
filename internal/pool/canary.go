package pool

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// advanceCanary takes the new revision through its steps, one at a time.
func (d *evaluation) advanceCanary(trusted *revisionState) {
	past := &d.updated.newHistory
	if told := d.recordedFailure(); told != "" && past.FailureMessage == "" { // and not yet written, or not yet seen, on the revision
		past.FailureMessage = told
		d.replaceWorkers(trusted, 0)
		return
	}
	verdict := d.compareFailures()
	if verdict.failed != "" {
		past.FailureMessage = verdict.failed
		d.replaceWorkers(trusted, 0)
		return
	}
	if past.CanaryStep < len(d.rollout.Steps) {
		if past.StepReached.IsZero() && d.desired > 0 && d.provenWorkers() >= d.canaryTarget() {
			past.StepReached, past.LastProgress = d.now, d.now
		}
		if !past.StepReached.IsZero() && d.isStepFinished(verdict) {
			past.CanaryStep, past.StepReached = past.CanaryStep+1, time.Time{}
		}
	}
	d.replaceWorkers(trusted, d.canaryTarget())
}

// recordedFailure is why the status says that the revision is given up; empty if it does not.
// The status is written first: what it says holds, though the workers that it was about may
// be gone before the revision says it too.
func (d *evaluation) recordedFailure() string {
	before := &d.observation.Pool.Status
	c := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || c.Reason != v1alpha1.ReasonAnalysisFailed || before.UpdatedRevision != d.updated.Name {
		return ""
	}
	return c.Message
}

// canaryTarget is how many workers are new in the present step. After the last all are.
func (d *evaluation) canaryTarget() int32 {
	past := &d.updated.newHistory
	if past.CanaryStep >= len(d.rollout.Steps) || d.desired == 0 {
		return d.desired
	}
	percent := d.rollout.Steps[past.CanaryStep].Percent
	return min(d.desired, max(1, int32(math.Ceil(float64(d.desired)*float64(percent)/100))))
}

// isStepFinished tells whether the step that was reached has lasted long enough: for its pause,
// or else until the new revision can be judged.
func (d *evaluation) isStepFinished(v canaryVerdict) bool {
	past := &d.updated.newHistory
	if pause := d.rollout.Steps[past.CanaryStep].Pause; pause != nil {
		return d.now.Sub(past.StepReached) >= pause.Duration.Duration
	}
	return v.known
}

// canaryVerdict about the new revision.
type canaryVerdict struct {
	// known: enough messages were handled to tell.
	known bool
	// failed is why it is no good; empty if it is.
	failed string
}

// compareFailures compares how often messages fail with the new revision and with the others.
func (d *evaluation) compareFailures() canaryVerdict {
	limit, samples := int32(defaultFailureIncrease), int64(defaultMinSamples)
	if a := d.rollout.Analysis; a != nil {
		if a.MaxFailureRatioIncreasePercent != nil {
			limit = *a.MaxFailureRatioIncreasePercent
		}
		if a.MinSamples > 0 {
			samples = int64(a.MinSamples)
		}
	}
	var fresh, old messageOutcomes
	for _, r := range d.revisions {
		if r == d.updated {
			fresh.addRevision(r)
			continue
		}
		old.addRevision(r)
	}
	if fresh.total() < samples {
		return canaryVerdict{}
	}
	if increase := fresh.failureRatio() - old.failureRatio(); increase > float64(limit)/100 {
		return canaryVerdict{known: true, failed: fmt.Sprintf("%s: %.1f %% of its %d messages have failed, %.1f %% before",
			v1alpha1.ReasonAnalysisFailed, 100*fresh.failureRatio(), fresh.total(), 100*old.failureRatio())}
	}
	return canaryVerdict{known: true}
}

// messageOutcomes of messages.
type messageOutcomes struct{ succeeded, failed int64 }

// addRevision what the revision's workers count. One that does not say counts for nothing.
func (o *messageOutcomes) addRevision(r *revisionState) {
	for _, w := range r.workers {
		if w.Stats != nil && w.Stats.Succeeded != nil && w.Stats.Failed != nil {
			o.succeeded += max(*w.Stats.Succeeded, 0)
			o.failed += max(*w.Stats.Failed, 0)
		}
	}
}

func (o *messageOutcomes) total() int64 { return o.succeeded + o.failed }

// failureRatio is which part of the messages failed.
func (o *messageOutcomes) failureRatio() float64 {
	if o.total() == 0 {
		return 0
	}
	return float64(o.failed) / float64(o.total())
}
