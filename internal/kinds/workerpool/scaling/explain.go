package scaling

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
