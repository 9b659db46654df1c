package render

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
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
			why += fmt.Sprintf(" (%s ago)", formatElapsed(d.Time.Time, now))
		}
		f := newScalingFormula(wp)
		lines = append(lines, why, "")
		lines = append(lines, indentedColumns(f.inputRows())...)
		lines = append(lines, "")
		lines = append(lines, indentedColumns(f.termRows())...)
		lines = append(lines, "", "  "+f.outcomeLine(), fmt.Sprintf("  Limits: %d to %d workers. The pool had %d at the time of the decision.",
			f.settings.MinReplicas, cmp.Or(f.maxReplicas, f.settings.MaxReplicas), f.inputs.Replicas))
	}
	for _, problem := range PoolProblems(wp) {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, problem.String()))
	}
	return lines
}

// scalingFormula computes the terms of package scaling's formula from the inputs of a decision. It leaves out the growth expected
// while a Pod starts, because a status lacks some of its inputs, so the decision can be higher than the terms.
type scalingFormula struct {
	inputs      *v1alpha1.ScaleInputs
	decision    *v1alpha1.ScaleDecision
	settings    scaling.Settings
	maxReplicas int32
}

func newScalingFormula(wp *v1alpha1.WorkerPool) *scalingFormula {
	d := wp.Status.LastDecision
	return &scalingFormula{
		inputs: &d.Inputs, decision: d, maxReplicas: replicaLimit(wp),
		settings: scaling.NewSettings(wp.Spec.Autoscaling, max(d.Inputs.Concurrency, 1)),
	}
}

// The service time before it is measured, and the shortest time in which to clear a backlog. They must equal the constants of package
// scaling.
const (
	assumedServiceTime = time.Second
	minClearingTime    = 4 * time.Second
)

func (f *scalingFormula) serviceTime() time.Duration {
	return ptr.Deref(f.inputs.ServiceTime, metav1.Duration{Duration: assumedServiceTime}).Duration
}

func (f *scalingFormula) arrivalRate() float64 {
	rate := ptr.Deref(f.inputs.ArrivalRate, resource.Quantity{})
	return rate.AsApproximateFloat64()
}

// clearingTime is the time in which to clear the backlog.
func (f *scalingFormula) clearingTime() time.Duration {
	return max(f.settings.WaitP95-durationOrZero(f.inputs.OldestAge)-durationOrZero(f.inputs.PodStart), minClearingTime)
}

func durationOrZero(d *metav1.Duration) time.Duration {
	return ptr.Deref(d, metav1.Duration{}).Duration
}

func (f *scalingFormula) hasInputs() bool { return f.inputs.Backlog != nil && f.inputs.InFlight != nil }

// messagesPerWorker is the target of the decision, or else backlogPerReplica; 0 without either.
func (f *scalingFormula) messagesPerWorker() float64 {
	if f.inputs.Target != nil {
		return f.inputs.Target.AsApproximateFloat64()
	}
	return float64(f.settings.BacklogPerReplica)
}

// usesBacklogOnly reports whether the messages per worker are the only term, because the service time is unknown.
func (f *scalingFormula) usesBacklogOnly() bool {
	return f.messagesPerWorker() > 0 && f.inputs.ServiceTime == nil
}

func (f *scalingFormula) handlersToKeepUp() float64 {
	return f.serviceTime().Seconds() * f.arrivalRate() / f.settings.Utilization
}

func (f *scalingFormula) handlersToClearBacklog() float64 {
	return f.serviceTime().Seconds() * (f.arrivalRate() + float64(*f.inputs.Backlog)/f.clearingTime().Seconds())
}

// workersByBacklog is the term of the messages per worker, which must be set.
func (f *scalingFormula) workersByBacklog() int32 {
	return roundUp(float64(*f.inputs.Backlog+*f.inputs.InFlight) / f.messagesPerWorker())
}

func (f *scalingFormula) computedReplicas() int32 {
	handlers := float64(*f.inputs.InFlight)
	if !f.usesBacklogOnly() {
		handlers = max(handlers, f.handlersToKeepUp(), f.handlersToClearBacklog())
	}
	workers := roundUp(handlers / float64(f.settings.Concurrency))
	if f.messagesPerWorker() > 0 {
		workers = max(workers, f.workersByBacklog())
	}
	return workers
}

func roundUp(n float64) int32 { return int32(min(math.Ceil(n-1e-6), math.MaxInt32)) }

func (f *scalingFormula) inputRows() [][]string {
	serviceTime := formatDuration(f.inputs.ServiceTime)
	switch {
	case f.inputs.ServiceTime != nil:
	case f.usesBacklogOnly() || f.inputs.Backlog == nil:
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
	if !f.hasInputs() {
		return [][]string{{"The message counts are unknown, so nothing is computed."}}
	}
	var rows [][]string
	if !f.usesBacklogOnly() {
		rows = append(rows,
			[]string{"to keep up with arrivals", "s·λ/ρ", FormatDecimal(f.handlersToKeepUp()) + " handlers"},
			[]string{"to also clear the backlog", "s·(λ + B/T)", fmt.Sprintf("%s handlers, T = max(slo − oldest − Pod start, %s) = %s",
				FormatDecimal(f.handlersToClearBacklog()), minClearingTime, FormatRounded(f.clearingTime()))},
		)
	}
	rows = append(rows, []string{"busy now", "F", formatCount(f.inputs.InFlight) + " handlers"})
	if per := f.messagesPerWorker(); per > 0 {
		rows = append(rows, []string{f.targetName(), fmt.Sprintf("(B + F)/%g", per), fmt.Sprintf("%d workers", f.workersByBacklog())})
	}
	return append(rows, []string{"workers", "largest term / c, rounded up", strconv.Itoa(int(f.computedReplicas()))})
}

// targetName names the source of the messages per worker.
func (f *scalingFormula) targetName() string {
	switch scaling.TargetSource(f.inputs.TargetSource) {
	case scaling.TargetFromSource:
		return "by the target of the source"
	case scaling.TargetDefault:
		return "by the default of a source"
	default:
		return "by backlogPerReplica"
	}
}

func (f *scalingFormula) outcomeLine() string {
	d := f.decision
	text := fmt.Sprintf("%d recommended, %d desired", d.Recommendation, d.Applied)
	if !f.hasInputs() {
		return text + "."
	}
	if computed := f.computedReplicas(); d.Recommendation > computed {
		text += fmt.Sprintf("; %d of them for expected growth, or for retries that are due", d.Recommendation-computed)
	}
	return text + "."
}
