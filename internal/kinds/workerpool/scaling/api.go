package scaling

import (
	"fmt"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Defaults of autoscaling, whether the API server sets them or not.
const (
	defaultWaitP95   = 30 * time.Second
	defaultIdleAfter = time.Minute
	defaultFallback  = time.Minute
)

// defaultScaleDown removes up to 60 % of the workers every 30 s: 20 % per 10 s, in few changes.
var defaultScaleDown = ScaleRule{Window: 15 * time.Second, Step: new(intstr.FromString("60%")), Period: 30 * time.Second}

// defaultPeriod is the period of a rule that sets only a step.
const defaultPeriod = 10 * time.Second

// NewSettings returns the settings of a pool's autoscaling. The caller sets the budget and the
// limits of the queues.
func NewSettings(a *v1alpha1.Autoscaling, concurrency int32) Settings {
	p := Settings{
		MinReplicas: a.MinReplicas, MaxReplicas: a.MaxReplicas,
		Concurrency:       concurrency,
		WaitP95:           decision.DurationOr(a.WaitP95, defaultWaitP95),
		BacklogPerReplica: ptr.Deref(a.BacklogPerReplica, 0),
		IdleAfter:         decision.DurationOr(a.IdleAfter, defaultIdleAfter),
		ScaleUp:           newScaleRule(a.ScaleUp, ScaleRule{}),
		ScaleDown:         newScaleRule(a.ScaleDown, defaultScaleDown),
		Suspended:         a.Suspend,
	}
	if a.Fallback != nil {
		p.Fallback = &Fallback{Replicas: a.Fallback.Replicas, After: decision.DurationOr(a.Fallback.After, defaultFallback)}
	}
	return p
}

// newScaleRule returns a rule, with omitted fields from def. A step without a period gets defaultPeriod.
func newScaleRule(given *v1alpha1.ScaleRule, def ScaleRule) ScaleRule {
	if given == nil {
		return def
	}
	rule := ScaleRule{Window: decision.DurationOr(given.Window, def.Window), Step: def.Step, Period: decision.DurationOr(given.Period, def.Period)}
	if given.MaxStep != nil {
		rule.Step = given.MaxStep
		if given.Period == nil {
			rule.Period = defaultPeriod
		}
	}
	if rule.Step != nil && rule.Period == 0 {
		rule.Period = defaultPeriod
	}
	return rule
}

// RestoreMemory returns the memory of an operator that has just started, from a WorkerPool's status. Everything else is measured again.
func RestoreMemory(status *v1alpha1.WorkerPoolStatus) Memory {
	memory := Memory{IdleSince: ptr.Deref(status.IdleSince, metav1.Time{}).Time}
	if stale := decision.FindReason(status.Conditions, v1alpha1.ConditionScalingActive, v1alpha1.ReasonMetricsStale); stale != nil {
		memory.MissingSince = stale.LastTransitionTime.Time
	}
	return memory
}

// ExplainDecision returns a decision in the form of a WorkerPool's status. Its message also has the terms of the formula.
func ExplainDecision(in Observation, d Decision) *v1alpha1.ScaleDecision {
	explained := &v1alpha1.ScaleDecision{
		Time: new(metav1.NewTime(in.Now)), Recommendation: d.Recommended, Explanation: v1alpha1.Explanation{Reason: string(d.Reason), Message: Summarize(in, d)},
	}
	if d.Formula != "" {
		explained.Message += "; " + d.Formula
	}
	return explained
}

// Summarize returns why a decision was made, without the terms of the formula, which differ in each decision.
func Summarize(in Observation, d Decision) string {
	p := in.Settings
	explanation := map[Reason]string{
		ReasonDemand:              "it follows the recommendation",
		ReasonWithinTolerance:     "the difference is within the tolerance",
		ReasonRateLimit:           "the rate limit of the queues leaves no messages for more workers",
		ReasonMaxInFlight:         "maxInFlight of the queues leaves no messages for more workers",
		ReasonIdle:                fmt.Sprintf("the pool was idle for %s", p.IdleAfter),
		ReasonIdleAfter:           fmt.Sprintf("the pool scales to zero after being idle for %s", p.IdleAfter),
		ReasonMinReplicas:         fmt.Sprintf("minReplicas is %d", p.MinReplicas),
		ReasonMaxReplicas:         fmt.Sprintf("maxReplicas is %d", p.MaxReplicas),
		ReasonBudget:              "the replica budget of a Policy allows no more",
		ReasonThroughputSaturated: "more workers did not increase throughput; check what the workers depend on, such as a database",
		ReasonThroughputUnproven:  "the last scale-up has not increased throughput yet",
		ReasonStabilizationWindow: "recommendations within the window differ",
		ReasonMaxStep:             "maxStep limits the change in this period",
		ReasonBusy:                "the other workers are busy",
		ReasonStatsUnavailable:    "queue metrics are unavailable, so the number of workers does not change",
		ReasonFallback:            "queue metrics are unavailable, so the fallback applies",
		ReasonSuspended:           "autoscaling is suspended",
	}[d.Reason]
	origin := map[TargetSource]string{
		TargetBacklogPerReplica: "backlogPerReplica", TargetFromSource: "target of the source", TargetDefault: "default without a service time",
	}[d.Target.Source]
	target := "" // of a recommendation that follows the service time, or of none
	switch {
	case d.Recommended == 0:
	case d.Target.Source == TargetAssumedServiceTime:
		target = fmt.Sprintf(" for an assumed service time of %s", defaultServiceTime)
	case origin != "":
		target = fmt.Sprintf(" for %s messages per worker (%s)", formatNumber(d.Target.BacklogPerReplica), origin)
	}
	text := fmt.Sprintf("%d recommended%s, staying at %d: %s", d.Recommended, target, in.Replicas, explanation)
	if d.Applied != in.Replicas {
		text = fmt.Sprintf("%d recommended%s, scaling from %d to %d: %s", d.Recommended, target, in.Replicas, d.Applied, explanation)
	}
	if d.WouldApply != d.Applied {
		text += fmt.Sprintf("; otherwise it would scale to %d", d.WouldApply)
	}
	return text
}

// formatNumber formats a number with at most three decimal places.
func formatNumber(n float64) string {
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64)
}
