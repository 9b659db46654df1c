package pool

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// canary takes the new revision through its steps, one at a time.
func (d *decision) canary(trusted *revision) {
	past := &d.updated.past
	if told := d.toldFailure(); told != "" && past.Failed == "" { // and not yet written, or not yet seen, on the revision
		past.Failed = told
		d.replace(trusted, 0)
		return
	}
	verdict := d.analyse()
	if verdict.failed != "" {
		past.Failed = verdict.failed
		d.replace(trusted, 0)
		return
	}
	if past.Step < len(d.rollout.Steps) {
		if past.Reached.IsZero() && d.desired > 0 && d.proven() >= d.target() {
			past.Reached, past.Progressed = d.now, d.now
		}
		if !past.Reached.IsZero() && d.stepOver(verdict) {
			past.Step, past.Reached = past.Step+1, time.Time{}
		}
	}
	d.replace(trusted, d.target())
}

// toldFailure is why the status says that the revision is given up; empty if it does not.
// The status is written first: what it says holds, though the workers that it was about may
// be gone before the revision says it too.
func (d *decision) toldFailure() string {
	before := &d.in.Pool.Status
	c := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || c.Reason != v1alpha1.ReasonAnalysisFailed || before.UpdatedRevision != d.updated.Name {
		return ""
	}
	return c.Message
}

// target is how many workers are new in the present step. After the last all are.
func (d *decision) target() int32 {
	past := &d.updated.past
	if past.Step >= len(d.rollout.Steps) || d.desired == 0 {
		return d.desired
	}
	percent := d.rollout.Steps[past.Step].Percent
	return min(d.desired, max(1, int32(math.Ceil(float64(d.desired)*float64(percent)/100))))
}

// stepOver tells whether the step that was reached has lasted long enough: for its pause,
// or else until the new revision can be judged.
func (d *decision) stepOver(v verdict) bool {
	past := &d.updated.past
	if pause := d.rollout.Steps[past.Step].Pause; pause != nil {
		return d.now.Sub(past.Reached) >= pause.Duration.Duration
	}
	return v.known
}

// verdict about the new revision.
type verdict struct {
	// known: enough messages were handled to tell.
	known bool
	// failed is why it is no good; empty if it is.
	failed string
}

// analyse compares how often messages fail with the new revision and with the others.
func (d *decision) analyse() verdict {
	limit, samples := int32(defaultFailureIncrease), int64(defaultMinSamples)
	if a := d.rollout.Analysis; a != nil {
		if a.MaxFailureRatioIncreasePercent != nil {
			limit = *a.MaxFailureRatioIncreasePercent
		}
		if a.MinSamples > 0 {
			samples = int64(a.MinSamples)
		}
	}
	var fresh, old outcomes
	for _, r := range d.revisions {
		if r == d.updated {
			fresh.add(r)
			continue
		}
		old.add(r)
	}
	if fresh.total() < samples {
		return verdict{}
	}
	if increase := fresh.failures() - old.failures(); increase > float64(limit)/100 {
		return verdict{known: true, failed: fmt.Sprintf("%s: %.1f %% of its %d messages have failed, %.1f %% before",
			v1alpha1.ReasonAnalysisFailed, 100*fresh.failures(), fresh.total(), 100*old.failures())}
	}
	return verdict{known: true}
}

// outcomes of messages.
type outcomes struct{ succeeded, failed int64 }

// add what the revision's workers count. One that does not say counts for nothing.
func (o *outcomes) add(r *revision) {
	for _, w := range r.workers {
		if w.Stats != nil && w.Stats.Succeeded != nil && w.Stats.Failed != nil {
			o.succeeded += max(*w.Stats.Succeeded, 0)
			o.failed += max(*w.Stats.Failed, 0)
		}
	}
}

func (o *outcomes) total() int64 { return o.succeeded + o.failed }

// failures is which part of the messages failed.
func (o *outcomes) failures() float64 {
	if o.total() == 0 {
		return 0
	}
	return float64(o.failed) / float64(o.total())
}
