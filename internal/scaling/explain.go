package scaling

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// ExplainDecision is a decision as a WorkerPool's status has it.
func ExplainDecision(in Observation, d Decision) *v1alpha1.ScaleDecision {
	return &v1alpha1.ScaleDecision{
		Time:           new(metav1.NewTime(in.Now)),
		Inputs:         decisionInputs(in, d),
		Recommendation: d.Recommended,
		Applied:        d.Applied,
		Reason:         string(d.Reason),
		Message:        decisionMessage(in, d),
	}
}

func decisionInputs(in Observation, d Decision) v1alpha1.ScaleInputs {
	known := v1alpha1.ScaleInputs{Replicas: in.Replicas, Concurrency: in.Settings.Concurrency}
	if in.PodStart > 0 {
		known.PodStart = roundedDuration(in.PodStart)
	}
	if in.Stats == nil {
		return known
	}
	known.Backlog, known.InFlight = new(in.Stats.Backlog), new(in.Stats.InFlight)
	known.OldestAge = roundedDuration(in.Stats.OldestAge)
	known.ArrivalRate = milliQuantity(d.ArrivalRate)
	if d.ServiceTime > 0 {
		known.ServiceTime = roundedDuration(d.ServiceTime)
	}
	return known
}

// decisionMessage says in a sentence what was wanted, and what became of it.
func decisionMessage(in Observation, d Decision) string {
	p := in.Settings
	why := map[Reason]string{
		ReasonDemand:              "the figures ask for it",
		ReasonWithinTolerance:     fmt.Sprintf("%d would not be worth the change", d.Recommended),
		ReasonRateLimit:           "more could begin no more under the queue's rate limit",
		ReasonMaxInFlight:         "more could have no message under the queue's maxInFlight",
		ReasonIdle:                fmt.Sprintf("there has been nothing to do for %s", p.IdleAfter),
		ReasonIdleAfter:           fmt.Sprintf("the last goes when there has been nothing to do for %s", p.IdleAfter),
		ReasonMinReplicas:         fmt.Sprintf("minReplicas is %d", p.MinReplicas),
		ReasonMaxReplicas:         fmt.Sprintf("maxReplicas is %d", p.MaxReplicas),
		ReasonBudget:              "the Policy's budget has no more for this pool",
		ReasonThroughputSaturated: "more workers have not finished more messages: what they wait for is at its limit",
		ReasonThroughputUnproven:  "it has not shown yet that the last growth was of use",
		ReasonStabilizationWindow: "another number was wanted within the window",
		ReasonMaxStep:             "maxStep allows no more in a period",
		ReasonBusy:                "the others have messages in flight",
		ReasonStatsUnavailable:    "nobody can tell what waits, so it stays as it is",
		ReasonFallback:            "nobody can tell what waits: fallback",
		ReasonPaused:              fmt.Sprintf("autoscaling is paused until %s", p.PausedUntil.UTC().Format(time.RFC3339)),
		ReasonDryRun:              "this is a dry run",
	}[d.Reason]
	text := fmt.Sprintf("%d wanted, %d there: %s", d.Recommended, in.Replicas, why)
	if d.Applied != in.Replicas {
		text = fmt.Sprintf("%d wanted, from %d to %d: %s", d.Recommended, in.Replicas, d.Applied, why)
	}
	if d.WouldApply != d.Applied {
		text += fmt.Sprintf("; otherwise there would be %d", d.WouldApply)
	}
	return text
}

func roundedDuration(d time.Duration) *metav1.Duration {
	return &metav1.Duration{Duration: d.Round(time.Millisecond)}
}

// maxReportedValue figure that is told; no broker has as many messages.
const maxReportedValue = 1e12

// milliQuantity is a figure to three places.
func milliQuantity(figure float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(math.Round(min(max(figure, 0), maxReportedValue)*1000)), resource.DecimalSI)
}
