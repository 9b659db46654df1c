package scaling

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of autoscaling, whether the API server sets them or not.
const (
	defaultWaitP95     = 30 * time.Second
	defaultUtilization = 80
	defaultIdleAfter   = time.Minute
	defaultFallback    = time.Minute
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
		WaitP95:           durationOr(ptr.Deref(a.SLO, v1alpha1.WaitObjective{}).WaitP95, defaultWaitP95),
		BacklogPerReplica: ptr.Deref(a.BacklogPerReplica, 0),
		Utilization:       float64(cmp.Or(a.TargetUtilizationPercent, defaultUtilization)) / 100,
		IdleAfter:         durationOr(a.IdleAfter, defaultIdleAfter),
		ScaleUp:           newScaleRule(a.ScaleUp, ScaleRule{}),
		ScaleDown:         newScaleRule(a.ScaleDown, defaultScaleDown),
		PausedUntil:       timeOf(a.PausedUntil),
		DryRun:            a.DryRun,
	}
	if a.Fallback != nil {
		p.Fallback = &Fallback{Replicas: a.Fallback.Replicas, After: durationOr(a.Fallback.After, defaultFallback)}
	}
	return p
}

// newScaleRule returns a rule, with omitted fields from def. A step without a period gets defaultPeriod.
func newScaleRule(given *v1alpha1.ScaleRule, def ScaleRule) ScaleRule {
	if given == nil {
		return def
	}
	rule := ScaleRule{Window: durationOr(given.Window, def.Window), Step: def.Step, Period: durationOr(given.Period, def.Period)}
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

func durationOr(given *v1alpha1.Duration, def time.Duration) time.Duration {
	if given == nil {
		return def
	}
	return given.Duration.Duration
}

// StoreMemory returns a memory in the form of a WorkerPool's status. Times are truncated to
// seconds, values to three decimal places.
func StoreMemory(m Memory) *v1alpha1.ScaleMemory {
	r, s := m.Rates, m.Saturation
	stored := &v1alpha1.ScaleMemory{
		MeasuredTime: storeTime(r.MeasuredAt),
		Arrived:      r.Arrived, Finished: r.Finished, Outstanding: r.Outstanding,
		ArrivalRate: milliQuantity(r.ArrivalRate), TrendRate: milliQuantity(r.TrendRate), FinishRate: milliQuantity(r.FinishRate),
		BusySeconds: milliQuantity(r.BusySeconds), BusyFinished: milliQuantity(r.BusyFinished), ServiceSeconds: milliQuantity(r.ReportedServiceSeconds),
		ScaleUp: storeRamp(m.ScaleUp), ScaleDown: storeRamp(m.ScaleDown),
		IdleTime: storeTime(m.IdleSince), MissingTime: storeTime(m.MissingSince),
		Saturation: &v1alpha1.SaturationMemory{
			Ready: s.Ready, Time: storeTime(s.ReadySince), ActiveSince: storeTime(s.ActiveSince),
			BaselineReady: s.BaselineReady, BaselineRate: milliQuantity(s.BaselineRate), SaturatedRate: milliQuantity(s.SaturatedRate),
		},
	}
	if s == (Saturation{}) {
		stored.Saturation = nil
	}
	for _, span := range m.Recommendations {
		stored.Recommendations = append(stored.Recommendations, v1alpha1.RecommendationSpan{
			Time: metav1.NewTime(span.Start.Truncate(time.Second)), Min: span.Min, Max: span.Max,
		})
	}
	return stored
}

// RestoreMemory returns the memory in a WorkerPool's status, or an empty memory.
func RestoreMemory(stored *v1alpha1.ScaleMemory) Memory {
	if stored == nil {
		return Memory{}
	}
	m := Memory{
		Rates: Rates{
			MeasuredAt: timeOf(stored.MeasuredTime),
			Arrived:    stored.Arrived, Finished: stored.Finished, Outstanding: stored.Outstanding,
			ArrivalRate: quantityValue(stored.ArrivalRate), TrendRate: quantityValue(stored.TrendRate), FinishRate: quantityValue(stored.FinishRate),
			BusySeconds: quantityValue(stored.BusySeconds), BusyFinished: quantityValue(stored.BusyFinished), ReportedServiceSeconds: quantityValue(stored.ServiceSeconds),
		},
		ScaleUp: restoreRamp(stored.ScaleUp), ScaleDown: restoreRamp(stored.ScaleDown),
		IdleSince: timeOf(stored.IdleTime), MissingSince: timeOf(stored.MissingTime),
	}
	if s := stored.Saturation; s != nil {
		m.Saturation = Saturation{
			Ready: s.Ready, ReadySince: timeOf(s.Time), ActiveSince: timeOf(s.ActiveSince),
			BaselineReady: s.BaselineReady, BaselineRate: quantityValue(s.BaselineRate), SaturatedRate: quantityValue(s.SaturatedRate),
		}
	}
	for _, span := range stored.Recommendations {
		m.Recommendations = append(m.Recommendations, RecommendationSpan{Start: span.Time.Time, Min: span.Min, Max: span.Max})
	}
	return m
}

func storeTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

func storeRamp(r ScaleRamp) *v1alpha1.ScaleRamp {
	if r.PeriodStart.IsZero() {
		return nil
	}
	return &v1alpha1.ScaleRamp{From: r.StartReplicas, PeriodFrom: &r.PeriodReplicas, Time: metav1.NewTime(r.PeriodStart.Truncate(time.Second))}
}

// restoreRamp restores a ramp. Memory of v0.1.0 has no PeriodFrom.
func restoreRamp(r *v1alpha1.ScaleRamp) ScaleRamp {
	if r == nil {
		return ScaleRamp{}
	}
	return ScaleRamp{StartReplicas: r.From, PeriodReplicas: ptr.Deref(r.PeriodFrom, r.From), PeriodStart: r.Time.Time}
}

func quantityValue(q *resource.Quantity) float64 {
	if q == nil || q.Sign() < 0 {
		return 0
	}
	return q.AsApproximateFloat64()
}

// ExplainDecision returns a decision in the form of a WorkerPool's status.
func ExplainDecision(in Observation, d Decision) *v1alpha1.ScaleDecision {
	known := v1alpha1.ScaleInputs{Replicas: in.Replicas, Concurrency: in.Settings.Concurrency}
	if in.PodStart > 0 {
		known.PodStart = roundedDuration(in.PodStart)
	}
	if in.Stats != nil {
		known.Backlog, known.InFlight = new(in.Stats.Backlog), new(in.Stats.Running)
		known.OldestAge = roundedDuration(in.Stats.OldestAge)
		if d.ArrivalRate > 0 || in.Stats.Arrived != nil || in.Stats.Finished != nil {
			known.ArrivalRate = milliQuantity(d.ArrivalRate)
		}
		known.TargetSource = string(d.Target.Source)
		if d.Target.BacklogPerReplica > 0 {
			known.Target = milliQuantity(d.Target.BacklogPerReplica)
		}
		if d.ServiceTime > 0 {
			known.ServiceTime = roundedDuration(d.ServiceTime)
		}
	}
	return &v1alpha1.ScaleDecision{
		Time: new(metav1.NewTime(in.Now)), Inputs: known, Recommendation: d.Recommended, Applied: d.Applied,
		Reason: string(d.Reason), Message: decisionMessage(in, d),
	}
}

func decisionMessage(in Observation, d Decision) string {
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
		ReasonPaused:              fmt.Sprintf("autoscaling is paused until %s", p.PausedUntil.UTC().Format(time.RFC3339)),
		ReasonDryRun:              "this is a dry run",
	}[d.Reason]
	if d.Reason == ReasonIdle && !in.Stats.IsIdle() {
		explanation = fmt.Sprintf("%d messages do not activate the pool, because the activation threshold of the source is %d",
			in.Stats.Backlog+in.Stats.Unaccounted, in.Stats.ActivationThreshold)
	}
	text := fmt.Sprintf("%d recommended%s, staying at %d: %s", d.Recommended, d.targetMessage(), in.Replicas, explanation)
	if d.Applied != in.Replicas {
		text = fmt.Sprintf("%d recommended%s, scaling from %d to %d: %s", d.Recommended, d.targetMessage(), in.Replicas, d.Applied, explanation)
	}
	if d.WouldApply != d.Applied {
		text += fmt.Sprintf("; otherwise it would scale to %d", d.WouldApply)
	}
	return text
}

// targetMessage explains the target of a recommendation; empty if it follows the service time.
func (d *Decision) targetMessage() string {
	origin := map[TargetSource]string{
		TargetBacklogPerReplica: "backlogPerReplica", TargetFromSource: "target of the source", TargetDefault: "default without a service time",
	}[d.Target.Source]
	switch {
	case d.Recommended == 0:
		return ""
	case d.Target.Source == TargetAssumedServiceTime:
		return fmt.Sprintf(" for an assumed service time of %s", defaultServiceTime)
	case origin == "":
		return ""
	}
	perReplica := strconv.FormatFloat(math.Round(d.Target.BacklogPerReplica*1000)/1000, 'f', -1, 64)
	return fmt.Sprintf(" for %s messages per worker (%s)", perReplica, origin)
}

func roundedDuration(d time.Duration) *metav1.Duration {
	return &metav1.Duration{Duration: d.Round(time.Millisecond)}
}

// maxReportedValue is the largest reported value. No broker has as many messages.
const maxReportedValue = 1e12

func milliQuantity(value float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(math.Round(min(max(value, 0), maxReportedValue)*1000)), resource.DecimalSI)
}
