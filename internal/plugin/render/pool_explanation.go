package render

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// PoolExplanation are lines about why a pool has as many workers as it has: what was decided,
// the figures it was decided from, and what each part of the formula makes of them.
func PoolExplanation(s terminal.Style, wp *v1alpha1.WorkerPool, now time.Time) []string {
	lines := []string{s.Bold(wp.Name) + "   " + workerSummary(&wp.Status)}
	d := wp.Status.LastDecision
	switch {
	case wp.Spec.Autoscaling == nil:
		lines = append(lines, "  "+manualReplicas(wp))
	case d == nil:
		lines = append(lines, "  nothing has been decided about it yet")
	default:
		lines = append(lines, "  "+s.Colorize(terminal.Cyan, terminal.Sanitize(d.Reason))+": "+terminal.Sanitize(d.Message)+formatTimeAgo(d.Time, now), "")
		f := newScalingFormula(wp)
		lines = append(lines, indentedColumns(f.inputRows())...)
		lines = append(lines, "")
		lines = append(lines, indentedColumns(f.termRows())...)
		lines = append(lines, "", "  "+f.outcomeLine(), "  "+f.boundsLine())
	}
	for _, trouble := range PoolProblems(wp) {
		lines = append(lines, "  "+s.Colorize(terminal.Yellow, trouble.String()))
	}
	return lines
}

func workerSummary(status *v1alpha1.WorkerPoolStatus) string {
	text := fmt.Sprintf("%d workers, %d ready", status.Desired, status.Ready)
	if status.Draining > 0 {
		text += fmt.Sprintf(", and %d draining", status.Draining)
	}
	return text
}

func manualReplicas(wp *v1alpha1.WorkerPool) string {
	asked := int32(0)
	if wp.Spec.Replicas != nil {
		asked = *wp.Spec.Replicas
	}
	return fmt.Sprintf("Manual: spec.replicas is %d, and nothing else changes the number", asked)
}

func formatTimeAgo(at *metav1.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" (%s ago)", max(0, now.Sub(at.Time)).Round(time.Second))
}

func indentedColumns(rows [][]string) []string {
	lines := terminal.AlignColumns(rows)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// scalingFormula is how many workers the figures of a decision ask for, in parts. It is package
// scaling's, but for the growth that is expected while a Pod starts, of which a status does
// not have all: then more are wanted than its terms come to.
type scalingFormula struct {
	inputs      *v1alpha1.ScaleInputs
	decision    *v1alpha1.ScaleDecision
	policy      scaling.Settings
	maxReplicas int32
}

func newScalingFormula(wp *v1alpha1.WorkerPool) *scalingFormula {
	d := wp.Status.LastDecision
	return &scalingFormula{
		inputs: &d.Inputs, decision: d, maxReplicas: replicaLimit(wp),
		policy: scaling.NewSettings(wp.Spec.Autoscaling, max(d.Inputs.Concurrency, 1)),
	}
}

// What holds as long as it is not known how long a message takes, and the least time in
// which a backlog is to be cleared, as package scaling has them.
const (
	assumedServiceTime = time.Second
	minClearingTime    = 4 * time.Second
)

func (f *scalingFormula) serviceTime() time.Duration {
	if f.inputs.ServiceTime == nil {
		return assumedServiceTime
	}
	return f.inputs.ServiceTime.Duration
}

func (f *scalingFormula) arrivalRate() float64 {
	if f.inputs.ArrivalRate == nil {
		return 0
	}
	return f.inputs.ArrivalRate.AsApproximateFloat64()
}

// clearingTime is the time in which the backlog is to be cleared.
func (f *scalingFormula) clearingTime() time.Duration {
	return max(f.policy.WaitP95-durationOrZero(f.inputs.OldestAge)-durationOrZero(f.inputs.PodStart), minClearingTime)
}

func durationOrZero(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// hasInputs reports whether there were figures to decide from.
func (f *scalingFormula) hasInputs() bool { return f.inputs.Backlog != nil && f.inputs.InFlight != nil }

// usesBacklogOnly reports whether backlogPerReplica alone counts: nothing else is known to go by.
func (f *scalingFormula) usesBacklogOnly() bool {
	return f.policy.BacklogPerReplica > 0 && f.inputs.ServiceTime == nil
}

// handlersToKeepUp and clearUp are the handlers it takes to keep up with what arrives, and to clear
// the backlog in time beside it.
func (f *scalingFormula) handlersToKeepUp() float64 {
	return f.serviceTime().Seconds() * f.arrivalRate() / f.policy.Utilization
}

func (f *scalingFormula) handlersToClearBacklog() float64 {
	return f.serviceTime().Seconds() * (f.arrivalRate() + float64(*f.inputs.Backlog)/f.clearingTime().Seconds())
}

// computedReplicas is how many workers the terms come to.
func (f *scalingFormula) computedReplicas() int32 {
	slots := float64(*f.inputs.InFlight)
	if !f.usesBacklogOnly() {
		slots = max(slots, f.handlersToKeepUp(), f.handlersToClearBacklog())
	}
	want := roundUp(slots / float64(f.policy.Concurrency))
	if per := f.policy.BacklogPerReplica; per > 0 {
		want = max(want, roundUp(float64(*f.inputs.Backlog+*f.inputs.InFlight)/float64(per)))
	}
	return want
}

func roundUp(n float64) int32 { return int32(min(math.Ceil(n-1e-6), math.MaxInt32)) }

func (f *scalingFormula) inputRows() [][]string {
	service := formatDuration(f.inputs.ServiceTime)
	if f.inputs.ServiceTime == nil {
		service = fmt.Sprintf("not known yet, %s is assumed", assumedServiceTime)
	}
	start := formatDuration(f.inputs.PodStart)
	if f.inputs.PodStart == nil {
		start = "not known yet"
	}
	return [][]string{
		{"λ", "arrivals", formatRate(f.inputs.ArrivalRate)},
		{"s", "time of a message", service},
		{"B", "backlog", formatCount(f.inputs.Backlog) + " messages, the oldest for " + formatDuration(f.inputs.OldestAge)},
		{"F", "in flight", formatCount(f.inputs.InFlight) + " messages"},
		{"c", "concurrency", fmt.Sprintf("%d messages a worker", f.policy.Concurrency)},
		{"ρ", "utilization", formatPercent(f.policy.Utilization)},
		{"slo", "longest wait", formatRounded(f.policy.WaitP95) + " for 95 of 100"},
		{"", "start of a Pod", start},
	}
}

func formatRate(rate *resource.Quantity) string {
	if rate == nil {
		return unknownValue
	}
	return formatDecimal(rate.AsApproximateFloat64()) + " messages a second"
}

func formatPercent(part float64) string { return formatDecimal(part*100) + "%" }

func formatDecimal(n float64) string { return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64) }

func (f *scalingFormula) termRows() [][]string {
	if !f.hasInputs() {
		return [][]string{{"There were no figures, so nothing is computed from them."}}
	}
	var rows [][]string
	if !f.usesBacklogOnly() {
		rows = append(rows,
			[]string{"to keep up", "s·λ/ρ", formatDecimal(f.handlersToKeepUp()) + " handlers"},
			[]string{"to clear the backlog too", "s·(λ + B/T)", fmt.Sprintf("%s handlers, T = max(slo − oldest − start, %s) = %s",
				formatDecimal(f.handlersToClearBacklog()), minClearingTime, formatRounded(f.clearingTime()))},
		)
	}
	rows = append(rows, []string{"at work now", "F", formatCount(f.inputs.InFlight) + " handlers"})
	if per := f.policy.BacklogPerReplica; per > 0 {
		byBacklog := roundUp(float64(*f.inputs.Backlog+*f.inputs.InFlight) / float64(per))
		rows = append(rows, []string{"by backlogPerReplica", fmt.Sprintf("(B + F)/%d", per), fmt.Sprintf("%d workers", byBacklog)})
	}
	return append(rows, []string{"workers", "the most of these, by c, rounded up", strconv.Itoa(int(f.computedReplicas()))})
}

// outcomeLine is what became of what the figures ask for.
func (f *scalingFormula) outcomeLine() string {
	d := f.decision
	text := fmt.Sprintf("%d wanted, %d applied", d.Recommendation, d.Applied)
	if !f.hasInputs() {
		return text
	}
	if computed := f.computedReplicas(); d.Recommendation > computed {
		text += fmt.Sprintf("; %d of those wanted are for growth that is expected while a Pod starts", d.Recommendation-computed)
	}
	return text + "."
}

// boundsLine of the number of workers.
func (f *scalingFormula) boundsLine() string {
	return fmt.Sprintf("Bounds: %d to %d workers; there were %d when this was decided.",
		f.policy.MinReplicas, cmp.Or(f.maxReplicas, f.policy.MaxReplicas), f.inputs.Replicas)
}
