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

// Explanation are lines about why a pool has as many workers as it has: what was decided,
// the figures it was decided from, and what each part of the formula makes of them.
func Explanation(s terminal.Style, wp *v1alpha1.WorkerPool, now time.Time) []string {
	lines := []string{s.Bold(wp.Name) + "   " + workers(&wp.Status)}
	d := wp.Status.LastDecision
	switch {
	case wp.Spec.Autoscaling == nil:
		lines = append(lines, "  "+byHand(wp))
	case d == nil:
		lines = append(lines, "  nothing has been decided about it yet")
	default:
		lines = append(lines, "  "+s.Paint(terminal.Cyan, terminal.Clean(d.Reason))+": "+terminal.Clean(d.Message)+since(d.Time, now), "")
		f := formulaOf(wp)
		lines = append(lines, indented(f.figures())...)
		lines = append(lines, "")
		lines = append(lines, indented(f.terms())...)
		lines = append(lines, "", "  "+f.outcome(), "  "+f.bounds())
	}
	for _, trouble := range Troubles(wp) {
		lines = append(lines, "  "+s.Paint(terminal.Yellow, trouble.String()))
	}
	return lines
}

func workers(status *v1alpha1.WorkerPoolStatus) string {
	text := fmt.Sprintf("%d workers, %d ready", status.Desired, status.Ready)
	if status.Draining > 0 {
		text += fmt.Sprintf(", and %d draining", status.Draining)
	}
	return text
}

func byHand(wp *v1alpha1.WorkerPool) string {
	asked := int32(0)
	if wp.Spec.Replicas != nil {
		asked = *wp.Spec.Replicas
	}
	return fmt.Sprintf("Manual: spec.replicas is %d, and nothing else changes the number", asked)
}

func since(at *metav1.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" (%s ago)", max(0, now.Sub(at.Time)).Round(time.Second))
}

func indented(rows [][]string) []string {
	lines := terminal.Columns(rows)
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// formula is how many workers the figures of a decision ask for, in parts. It is package
// scaling's, but for the growth that is expected while a Pod starts, of which a status does
// not have all: then more are wanted than its terms come to.
type formula struct {
	in       *v1alpha1.ScaleInputs
	decision *v1alpha1.ScaleDecision
	policy   scaling.Settings
	most     int32
}

func formulaOf(wp *v1alpha1.WorkerPool) *formula {
	d := wp.Status.LastDecision
	return &formula{
		in: &d.Inputs, decision: d, most: room(wp),
		policy: scaling.NewSettings(wp.Spec.Autoscaling, max(d.Inputs.Concurrency, 1)),
	}
}

// What holds as long as it is not known how long a message takes, and the least time in
// which a backlog is to be cleared, as package scaling has them.
const (
	assumedService   = time.Second
	shortestClearing = 4 * time.Second
)

func (f *formula) service() time.Duration {
	if f.in.ServiceTime == nil {
		return assumedService
	}
	return f.in.ServiceTime.Duration
}

func (f *formula) rate() float64 {
	if f.in.ArrivalRate == nil {
		return 0
	}
	return f.in.ArrivalRate.AsApproximateFloat64()
}

// clearing is the time in which the backlog is to be cleared.
func (f *formula) clearing() time.Duration {
	return max(f.policy.WaitP95-lasting(f.in.OldestAge)-lasting(f.in.PodStart), shortestClearing)
}

func lasting(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// known reports whether there were figures to decide from.
func (f *formula) known() bool { return f.in.Backlog != nil && f.in.InFlight != nil }

// byBacklog reports whether backlogPerReplica alone counts: nothing else is known to go by.
func (f *formula) byBacklog() bool { return f.policy.BacklogPerReplica > 0 && f.in.ServiceTime == nil }

// keepUp and clearUp are the handlers it takes to keep up with what arrives, and to clear
// the backlog in time beside it.
func (f *formula) keepUp() float64 { return f.service().Seconds() * f.rate() / f.policy.Utilization }

func (f *formula) clearUp() float64 {
	return f.service().Seconds() * (f.rate() + float64(*f.in.Backlog)/f.clearing().Seconds())
}

// want is how many workers the terms come to.
func (f *formula) want() int32 {
	slots := float64(*f.in.InFlight)
	if !f.byBacklog() {
		slots = max(slots, f.keepUp(), f.clearUp())
	}
	want := ceil(slots / float64(f.policy.Concurrency))
	if per := f.policy.BacklogPerReplica; per > 0 {
		want = max(want, ceil(float64(*f.in.Backlog+*f.in.InFlight)/float64(per)))
	}
	return want
}

func ceil(n float64) int32 { return int32(min(math.Ceil(n-1e-6), math.MaxInt32)) }

func (f *formula) figures() [][]string {
	service := span(f.in.ServiceTime)
	if f.in.ServiceTime == nil {
		service = fmt.Sprintf("not known yet, %s is assumed", assumedService)
	}
	start := span(f.in.PodStart)
	if f.in.PodStart == nil {
		start = "not known yet"
	}
	return [][]string{
		{"λ", "arrivals", rateText(f.in.ArrivalRate)},
		{"s", "time of a message", service},
		{"B", "backlog", figure(f.in.Backlog) + " messages, the oldest for " + span(f.in.OldestAge)},
		{"F", "in flight", figure(f.in.InFlight) + " messages"},
		{"c", "concurrency", fmt.Sprintf("%d messages a worker", f.policy.Concurrency)},
		{"ρ", "utilization", percent(f.policy.Utilization)},
		{"slo", "longest wait", rounded(f.policy.WaitP95) + " for 95 of 100"},
		{"", "start of a Pod", start},
	}
}

func rateText(rate *resource.Quantity) string {
	if rate == nil {
		return unknown
	}
	return decimal(rate.AsApproximateFloat64()) + " messages a second"
}

func percent(part float64) string { return decimal(part*100) + "%" }

func decimal(n float64) string { return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64) }

func (f *formula) terms() [][]string {
	if !f.known() {
		return [][]string{{"There were no figures, so nothing is computed from them."}}
	}
	var rows [][]string
	if !f.byBacklog() {
		rows = append(rows,
			[]string{"to keep up", "s·λ/ρ", decimal(f.keepUp()) + " handlers"},
			[]string{"to clear the backlog too", "s·(λ + B/T)", fmt.Sprintf("%s handlers, T = max(slo − oldest − start, %s) = %s",
				decimal(f.clearUp()), shortestClearing, rounded(f.clearing()))},
		)
	}
	rows = append(rows, []string{"at work now", "F", figure(f.in.InFlight) + " handlers"})
	if per := f.policy.BacklogPerReplica; per > 0 {
		byBacklog := ceil(float64(*f.in.Backlog+*f.in.InFlight) / float64(per))
		rows = append(rows, []string{"by backlogPerReplica", fmt.Sprintf("(B + F)/%d", per), fmt.Sprintf("%d workers", byBacklog)})
	}
	return append(rows, []string{"workers", "the most of these, by c, rounded up", strconv.Itoa(int(f.want()))})
}

// outcome is what became of what the figures ask for.
func (f *formula) outcome() string {
	d := f.decision
	text := fmt.Sprintf("%d wanted, %d applied", d.Want, d.Applied)
	if !f.known() {
		return text
	}
	if computed := f.want(); d.Want > computed {
		text += fmt.Sprintf("; %d of those wanted are for growth that is expected while a Pod starts", d.Want-computed)
	}
	return text + "."
}

// bounds of the number of workers.
func (f *formula) bounds() string {
	return fmt.Sprintf("Bounds: %d to %d workers; there were %d when this was decided.",
		f.policy.MinReplicas, cmp.Or(f.most, f.policy.MaxReplicas), f.in.Replicas)
}
