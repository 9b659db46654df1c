package render

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PoolExplanation renders why a pool has its number of workers: the last decision, its inputs and the result of each term of the
// scaling formula.
func PoolExplanation(s terminal.Style, wp *v1alpha1.WorkerPool, now time.Time) []string {
	status, d := &wp.Status, wp.Status.LastDecision
	title := fmt.Sprintf("%s   %d workers, %d ready", s.Bold(wp.Name), status.Desired, status.Ready)
	if status.Draining > 0 {
		title += fmt.Sprintf(", %d draining", status.Draining)
	}
	lines := []string{title}
	switch {
	case wp.Spec.Autoscaling == nil:
		lines = append(lines, fmt.Sprintf("  Manual: spec.replicas is %d, and autoscaling is off", ptr.Deref(wp.Spec.Replicas, 0)))
	case d == nil:
		lines = append(lines, "  no scaling decision yet")
	default:
		why := "  " + s.Colorize(terminal.Cyan, terminal.Sanitize(d.Reason)) + ": " + terminal.Sanitize(d.Message)
		if d.Time != nil {
			why += fmt.Sprintf(" (%s ago)", elapsedSince(d.Time, now))
		}
		f := newScalingFormula(wp)
		outcome := fmt.Sprintf("  %d recommended, %d desired", d.Recommendation, d.Applied)
		if f.isKnown && d.Recommendation > f.workers {
			outcome += fmt.Sprintf("; %d of them for expected growth, or for retries that are due", d.Recommendation-f.workers)
		}
		lines = append(append(lines, why, ""), indentedColumns(f.inputRows())...)
		lines = append(append(lines, ""), indentedColumns(f.termRows())...)
		lines = append(lines, "", outcome+".", fmt.Sprintf("  Limits: %d to %d workers. The pool had %d at the time of the decision.",
			f.settings.MinReplicas, cmp.Or(replicaLimit(wp), f.settings.MaxReplicas), f.inputs.Replicas))
	}
	return append(lines, problemLines(s, PoolProblems(wp))...)
}

// scalingFormula has the terms of package scaling's formula, computed from the inputs of a decision. It leaves out the growth expected
// while a Pod starts, because a status lacks some of its inputs, so the decision can be higher than the terms.
type scalingFormula struct {
	inputs   *v1alpha1.ScaleInputs
	settings scaling.Settings
	// messagesPerWorker is the target of the decision, or else backlogPerReplica; 0 without either.
	messagesPerWorker float64
	// usesBacklogOnly is set if the messages per worker are the only term, because the service time is unknown.
	usesBacklogOnly bool
	// isKnown is set if the message counts are known. Otherwise, the terms are zero.
	isKnown bool
	// keepUp and clearBacklog are the handlers that keep up with arrivals, and that also clear the backlog in clearingTime.
	keepUp, clearBacklog float64
	clearingTime         time.Duration
	// byBacklog is the term of the messages per worker, and workers the result.
	byBacklog, workers int32
}

// The service time before it is measured, and the shortest time in which to clear a backlog. They must equal the constants of package
// scaling.
const (
	assumedServiceTime = time.Second
	minClearingTime    = 4 * time.Second
)

func newScalingFormula(wp *v1alpha1.WorkerPool) *scalingFormula {
	in := &wp.Status.LastDecision.Inputs
	f := &scalingFormula{inputs: in, settings: scaling.NewSettings(wp.Spec.Autoscaling, max(in.Concurrency, 1)), isKnown: in.Backlog != nil && in.InFlight != nil}
	f.messagesPerWorker = float64(f.settings.BacklogPerReplica)
	if in.Target != nil {
		f.messagesPerWorker = in.Target.AsApproximateFloat64()
	}
	f.usesBacklogOnly = f.messagesPerWorker > 0 && in.ServiceTime == nil
	if !f.isKnown {
		return f
	}
	arrivalRate := 0.0
	if in.ArrivalRate != nil {
		arrivalRate = in.ArrivalRate.AsApproximateFloat64()
	}
	serviceTime := ptr.Deref(in.ServiceTime, metav1.Duration{Duration: assumedServiceTime}).Seconds()
	f.clearingTime = max(f.settings.WaitP95-ptr.Deref(in.OldestAge, metav1.Duration{}).Duration-ptr.Deref(in.PodStart, metav1.Duration{}).Duration, minClearingTime)
	f.keepUp = serviceTime * arrivalRate / f.settings.Utilization
	f.clearBacklog = serviceTime * (arrivalRate + float64(*in.Backlog)/f.clearingTime.Seconds())
	handlers := float64(*in.InFlight)
	if !f.usesBacklogOnly {
		handlers = max(handlers, f.keepUp, f.clearBacklog)
	}
	roundUp := func(n float64) int32 { return int32(min(math.Ceil(n-1e-6), math.MaxInt32)) }
	f.workers = roundUp(handlers / float64(f.settings.Concurrency))
	if f.messagesPerWorker > 0 {
		f.byBacklog = roundUp(float64(*in.Backlog+*in.InFlight) / f.messagesPerWorker)
		f.workers = max(f.workers, f.byBacklog)
	}
	return f
}

func (f *scalingFormula) inputRows() [][]string {
	serviceTime := formatDuration(f.inputs.ServiceTime)
	switch {
	case f.inputs.ServiceTime != nil:
	case f.usesBacklogOnly || f.inputs.Backlog == nil:
		serviceTime = "unknown"
	default:
		serviceTime = fmt.Sprintf("unknown, assumed to be %s", assumedServiceTime)
	}
	podStart := formatDuration(f.inputs.PodStart)
	if f.inputs.PodStart == nil {
		podStart = "unknown"
	}
	arrivalRate := unknownValue
	if rate := f.inputs.ArrivalRate; rate != nil {
		arrivalRate = FormatDecimal(rate.AsApproximateFloat64()) + " messages/s"
	}
	return [][]string{
		{"λ", "arrival rate", arrivalRate},
		{"s", "service time", serviceTime},
		{"B", "backlog", formatCount(f.inputs.Backlog) + " messages, oldest " + formatDuration(f.inputs.OldestAge)},
		{"F", "running", formatCount(f.inputs.InFlight) + " handlers"},
		{"c", "concurrency", fmt.Sprintf("%d messages per worker", f.settings.Concurrency)},
		{"ρ", "utilization", FormatDecimal(f.settings.Utilization*100) + "%"},
		{"slo", "p95 wait objective", FormatRounded(f.settings.WaitP95)},
		{"", "Pod start time", podStart},
	}
}

func (f *scalingFormula) termRows() [][]string {
	if !f.isKnown {
		return [][]string{{"The message counts are unknown, so nothing is computed."}}
	}
	var rows [][]string
	if !f.usesBacklogOnly {
		rows = append(rows,
			[]string{"to keep up with arrivals", "s·λ/ρ", FormatDecimal(f.keepUp) + " handlers"},
			[]string{"to also clear the backlog", "s·(λ + B/T)", fmt.Sprintf("%s handlers, T = max(slo − oldest − Pod start, %s) = %s",
				FormatDecimal(f.clearBacklog), minClearingTime, FormatRounded(f.clearingTime))},
		)
	}
	rows = append(rows, []string{"busy now", "F", formatCount(f.inputs.InFlight) + " handlers"})
	if f.messagesPerWorker > 0 {
		source := cmp.Or(targetNames[scaling.TargetSource(f.inputs.TargetSource)], "by backlogPerReplica")
		rows = append(rows, []string{source, fmt.Sprintf("(B + F)/%g", f.messagesPerWorker), fmt.Sprintf("%d workers", f.byBacklog)})
	}
	return append(rows, []string{"workers", "largest term / c, rounded up", strconv.Itoa(int(f.workers))})
}

// targetNames are the names of the sources of messagesPerWorker.
var targetNames = map[scaling.TargetSource]string{
	scaling.TargetFromSource: "by the target of the source", scaling.TargetDefault: "by the default of a source",
}
