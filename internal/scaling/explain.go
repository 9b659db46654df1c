package scaling

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Explain is a decision as a WorkerPool's status has it.
func Explain(in Input, d Decision) *v1alpha1.ScaleDecision {
	return &v1alpha1.ScaleDecision{
		Time:    new(metav1.NewTime(in.Now)),
		Inputs:  inputs(in, d),
		Want:    d.Want,
		Applied: d.Applied,
		Reason:  string(d.Reason),
		Message: message(in, d),
	}
}

func inputs(in Input, d Decision) v1alpha1.ScaleInputs {
	known := v1alpha1.ScaleInputs{Replicas: in.Replicas, Concurrency: in.Policy.Concurrency}
	if in.PodStart > 0 {
		known.PodStart = span(in.PodStart)
	}
	if in.Figures == nil {
		return known
	}
	known.Backlog, known.InFlight = new(in.Figures.Backlog), new(in.Figures.InFlight)
	known.OldestAge = span(in.Figures.OldestAge)
	known.ArrivalRate = milli(d.ArrivalRate)
	if d.ServiceTime > 0 {
		known.ServiceTime = span(d.ServiceTime)
	}
	return known
}

// message says in a sentence what was wanted, and what became of it.
func message(in Input, d Decision) string {
	p := in.Policy
	why := map[Reason]string{
		ReasonDemand:          "the figures ask for it",
		ReasonWithinTolerance: fmt.Sprintf("%d would not be worth the change", d.Want),
		ReasonRateLimit:       "more could begin no more under the queue's rate limit",
		ReasonMaxInFlight:     "more could have no message under the queue's maxInFlight",
		ReasonIdle:            fmt.Sprintf("there has been nothing to do for %s", p.IdleAfter),
		ReasonNotIdleForLong:  fmt.Sprintf("the last goes when there has been nothing to do for %s", p.IdleAfter),
		ReasonMinReplicas:     fmt.Sprintf("minReplicas is %d", p.Min),
		ReasonMaxReplicas:     fmt.Sprintf("maxReplicas is %d", p.Max),
		ReasonBudget:          "the Policy's budget has no more for this pool",
		ReasonSaturated:       "more workers have not finished more messages: what they wait for is at its limit",
		ReasonUnproven:        "it has not shown yet that the last growth was of use",
		ReasonWindow:          "another number was wanted within the window",
		ReasonStep:            "maxStep allows no more in a period",
		ReasonBusy:            "the others have messages in flight",
		ReasonNoFigures:       "nobody can tell what waits, so it stays as it is",
		ReasonFallback:        "nobody can tell what waits: fallback",
		ReasonPaused:          fmt.Sprintf("autoscaling is paused until %s", p.PausedUntil.UTC().Format(time.RFC3339)),
		ReasonDryRun:          "this is a dry run",
	}[d.Reason]
	text := fmt.Sprintf("%d wanted, %d there: %s", d.Want, in.Replicas, why)
	if d.Applied != in.Replicas {
		text = fmt.Sprintf("%d wanted, from %d to %d: %s", d.Want, in.Replicas, d.Applied, why)
	}
	if d.Intended != d.Applied {
		text += fmt.Sprintf("; otherwise there would be %d", d.Intended)
	}
	return text
}

func span(d time.Duration) *metav1.Duration {
	return &metav1.Duration{Duration: d.Round(time.Millisecond)}
}

// greatest figure that is told; no broker has as many messages.
const greatest = 1e12

// milli is a figure to three places.
func milli(figure float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(math.Round(min(max(figure, 0), greatest)*1000)), resource.DecimalSI)
}
