package agenticsession

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
)

const (
	// AnnotationCost of a Lease contains the cost of the attempt so far, as the runner reports it: the name of its Job,
	// an equals sign, and a decimal number of dollars.
	AnnotationCost = v1alpha1.Prefix + "cost-usd"
	// CostRecordInterval limits how often a cost below the limit is recorded.
	CostRecordInterval = time.Minute
	// microsPerDollar is the precision of costs.
	microsPerDollar = 1e6
	// maxCostDollars is small enough to sum costs without loss of precision.
	maxCostDollars = 1e9
	// maxTotalMicros is 9 billion dollars: a float64 represents each millionth of it.
	maxTotalMicros = 9e9 * microsPerDollar
	// maxCostReportBytes is the maximum length of AnnotationCost.
	maxCostReportBytes = 128
)

// decimalCost has no sign and no exponent, so its length limits its value.
var decimalCost = regexp.MustCompile(`^\d{1,10}(\.\d{1,12})?$`)

// CostReport is the cost that runners reported in the Lease of a session.
type CostReport struct {
	// Job of the runner that reported a valid cost last.
	Job string
	// USD is the highest cost that this runner reported.
	USD v1alpha1.Number
	// Problem is why the last report is not valid; empty if it is valid.
	Problem string
}

// Next returns the report after a value of AnnotationCost was observed. The cost of a runner never decreases.
func (r CostReport) Next(annotation string) CostReport {
	if annotation == "" {
		return r
	}
	job, cost, err := parseCostReport(annotation)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	if r.Job == job {
		cost = higherCost(&r.USD, &cost)
	}
	return CostReport{Job: job, USD: cost}
}

func parseCostReport(annotation string) (job string, cost v1alpha1.Number, err error) {
	if len(annotation) > maxCostReportBytes {
		return "", "", fmt.Errorf("annotation %s of the Lease has %d bytes, the maximum is %d", AnnotationCost, len(annotation), maxCostReportBytes)
	}
	job, dollars, found := strings.Cut(annotation, "=")
	if !found || job == "" || !decimalCost.MatchString(dollars) {
		return "", "", fmt.Errorf("annotation %s of the Lease is %q, it must be the name of the runner's Job, =, and a decimal number of dollars", AnnotationCost, annotation)
	}
	if cost, err = parseCost(dollars); err != nil {
		return "", "", err
	}
	return job, cost, nil
}

// higherCost returns the higher of two costs. An empty cost is not known; a is nil if no cost is recorded.
func higherCost(a, b *v1alpha1.Number) v1alpha1.Number {
	switch {
	case a == nil || *a == "":
		return *b
	case *b == "" || microsOf(a) >= microsOf(b):
		return *a
	}
	return *b
}

type costLimit struct {
	micros int64
	// owner is the object that sets the limit.
	owner string
}

// runnerLimits returns the time and cost limits of the SessionRunner. An attempt keeps those with which its Job was created.
func runnerLimits(o *Observation, status *v1alpha1.AgenticSessionStatus) v1alpha1.RunLimits {
	kept := status.Attempt.Limits.RunLimits
	if status.Attempt.JobUID == "" && o.Runner != nil {
		next := &o.Runner.Spec.Limits
		kept.Timeout, kept.MaxCostUSD = cmp.Or(kept.Timeout, next.Timeout), cmp.Or(kept.MaxCostUSD, next.MaxCostUSD)
	}
	return kept
}

// findCostLimit returns the maximum cost of a session; nil if it is not limited.
func findCostLimit(o *Observation, status *v1alpha1.AgenticSessionStatus) *costLimit {
	var limit *costLimit
	lower := func(cost *v1alpha1.Number, owner string) {
		if cost == nil {
			return
		}
		if micros := microsOf(cost); limit == nil || micros < limit.micros {
			limit = &costLimit{micros, owner}
		}
	}
	lower(o.Session.Spec.Limits.MaxCostUSD, "the session")
	lower(runnerLimits(o, status).MaxCostUSD, "SessionRunner "+RunnerOf(o.Session))
	return limit
}

// costProblem returns why no attempt may run; nil if the cost of the session is below its limit. An unknown cost does
// not count.
func costProblem(o *Observation, status *v1alpha1.AgenticSessionStatus) *decision.Problem {
	limit, total := findCostLimit(o, status), microsOf(status.TotalCostUSD)
	if limit == nil || total < limit.micros {
		return nil
	}
	return &decision.Problem{Reason: v1alpha1.ReasonBudgetExceeded, Message: fmt.Sprintf(
		"the session cost %s of at most %s US dollars; increase maxCostUSD of %s to run it again",
		formatDollars(total), formatDollars(limit.micros), limit.owner)}
}

// RemainingCost returns how many millionths of a dollar the open attempt may report in total; false if its cost is not
// limited.
func RemainingCost(o *Observation) (micros int64, limited bool) {
	status := &o.Session.Status
	limit := findCostLimit(o, status)
	if limit == nil {
		return 0, false
	}
	return limit.micros - microsOf(status.TotalCostUSD) + microsOf(status.Attempt.CostUSD), true
}

// Micros returns the reported cost in millionths of a dollar.
func (r CostReport) Micros() int64 { return microsOf(&r.USD) }

// parseCost parses a number of dollars and rounds it to millionths.
func parseCost(text string) (v1alpha1.Number, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(cost) || cost < 0 || cost > maxCostDollars {
		return "", fmt.Errorf("costUSD is %s, it must be from 0 to %.0f", text, float64(maxCostDollars))
	}
	return formatDollars(int64(math.Round(cost * microsPerDollar))), nil
}

// microsOf is the inverse of formatDollars. It returns 0 for a cost that is not known, and for an invalid cost, which only an edited
// status can contain.
func microsOf(cost *v1alpha1.Number) int64 {
	if cost == nil {
		return 0
	}
	dollars, err := strconv.ParseFloat(string(*cost), 64)
	if err != nil || math.IsNaN(dollars) || math.Abs(dollars) > math.MaxInt64/microsPerDollar/2 {
		return 0
	}
	return int64(math.Round(dollars * microsPerDollar))
}

func formatDollars(amount int64) v1alpha1.Number {
	text := fmt.Sprintf("%d.%06d", amount/microsPerDollar, amount%microsPerDollar)
	return v1alpha1.Number(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

// attemptCost returns the highest cost that the runner of the open attempt reported; empty if it reported none.
func attemptCost(f *facts, attempt *v1alpha1.SessionAttempt) v1alpha1.Number {
	reported := new(v1alpha1.Number)
	if f.Activity != nil && f.Activity.Cost.Job == attempt.JobName {
		reported = &f.Activity.Cost.USD
	}
	return higherCost(attempt.CostUSD, reported)
}

// dueCost returns the cost of the open attempt, and whether it is to be recorded: at once for its first report and for a report that
// reaches the limit, and otherwise at most once in CostRecordInterval.
func dueCost(f *facts, s *v1alpha1.AgenticSessionStatus, left evidence, timer *decision.Timer) (cost v1alpha1.Number, isDue bool) {
	if isMetered(f, left.pod) { // its proxy holds the budget, and reports when it ends
		return "", false
	}
	cost = attemptCost(f, &s.Attempt)
	if cost == "" || s.Attempt.CostUSD != nil && microsOf(&cost) == microsOf(s.Attempt.CostUSD) {
		return "", false
	}
	limit := findCostLimit(&f.Observation, s)
	reachesLimit := limit != nil && microsOf(s.TotalCostUSD)+microsOf(&cost)-microsOf(s.Attempt.CostUSD) >= limit.micros
	return cost, s.Attempt.CostUSD == nil || s.Attempt.CostRecordTime == nil ||
		timer.HasReached(s.Attempt.CostRecordTime.Add(CostRecordInterval)) || reachesLimit
}

// addCost records the cost of the open attempt.
func addCost(s *v1alpha1.AgenticSessionStatus, cost v1alpha1.Number, now metav1.Time) {
	added := microsOf(&cost) - microsOf(s.Attempt.CostUSD)
	s.TotalCostUSD = new(formatDollars(min(microsOf(s.TotalCostUSD)+added, maxTotalMicros)))
	s.Attempt.CostUSD, s.Attempt.CostRecordTime = &cost, &now
}

// finalCost returns the cost of the attempt that ends, empty if it is not known, and what is reported about it.
func finalCost(f *facts, s *v1alpha1.AgenticSessionStatus, left evidence) (cost v1alpha1.Number, reports []decision.State) {
	if isMetered(f, left.pod) {
		cost, problem := meteredCost(f, s, left)
		if problem != "" {
			reports = []decision.State{{
				Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonCostUnknown,
				Message: fmt.Sprintf("attempt %d of run %d: %s", s.Attempt.Attempt, s.Run, problem),
			}}
		}
		return cost, reports
	}
	cost = attemptCost(f, &s.Attempt)
	if s.Attempt.RunnerStartTime != nil || cost != "" {
		reports = costReports(f, s, left)
	}
	return cost, reports
}

// costReports reports whether the cost of the open attempt is known, if it has a limit: maxCostUSD does not limit an unknown cost.
func costReports(f *facts, s *v1alpha1.AgenticSessionStatus, left evidence) []decision.State {
	attempt := fmt.Sprintf("the runner of attempt %d of run %d", s.Attempt.Attempt, s.Run)
	unknown := decision.State{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonCostUnknown}
	switch hasLease := s.Attempt.Limits.ActivityLease; {
	case findCostLimit(&f.Observation, s) == nil:
		return nil
	case isMetered(f, left.pod):
	case hasLease && f.Activity != nil && f.Activity.Cost.Problem != "":
		return []decision.State{decision.False(v1alpha1.ReasonCostMalformed, f.Activity.Cost.Problem)}
	case attemptCost(f, &s.Attempt) != "":
	case hasLease:
		unknown.Message = attempt + " has reported no cost, so maxCostUSD does not stop it; it must set the annotation " + AnnotationCost +
			" of Lease " + LeaseName(f.Session.Name)
		return []decision.State{unknown}
	default:
		unknown.Message = attempt + " can report a cost only in its result, so maxCostUSD does not stop it; set activityLease in its SessionRunner"
		return []decision.State{unknown}
	}
	return []decision.State{decision.True(v1alpha1.ReasonReporting, "")}
}

// isMetered reports whether the open attempt's agent calls its model through the proxy.
func isMetered(f *facts, pod *corev1.Pod) bool {
	if pod != nil && len(pod.Status.InitContainerStatuses)+len(pod.Status.ContainerStatuses) > 0 {
		return findContainer(pod, ModelContainer) != nil
	}
	return f.Runner != nil && f.Runner.Spec.Model != nil
}

// meteredCost returns the cost of the open attempt that ends, as its proxy reports it. If the report is lost with the Pod, the attempt
// cost what it could: the rest of the budget. The cost is empty if the runner did not run, or the cost has neither a report nor a limit.
func meteredCost(f *facts, s *v1alpha1.AgenticSessionStatus, left evidence) (cost v1alpha1.Number, problem string) {
	var message string
	if c := findContainer(left.pod, ModelContainer); c != nil {
		switch {
		case c.State.Terminated != nil:
			message = c.State.Terminated.Message
		case c.State.Waiting != nil && c.LastTerminationState.Terminated != nil:
			message = c.LastTerminationState.Terminated.Message
		}
	}
	report, err := modelproxy.ParseReport(message)
	switch {
	case err == nil && !report.Incomplete:
		if cost, err = parseCost(report.SpentUSD); err == nil {
			return cost, ""
		}
	case err == nil:
		return "", "the agent used models without a price, so its cost is not known; add them to spec.model.prices of its SessionRunner"
	}
	// If nobody saw the Job, which is gone, start, its Pod may have run while no operator did. A running operator remembers the Pod of a Job
	// that it has just deleted.
	isUnseen := left.job == nil && left.pod == nil && s.Attempt.JobUID != "" && (s.Attempt.StopTime == nil || f.Now.After(stuckTime(s)))
	limit := findCostLimit(&f.Observation, s)
	switch {
	case !isUnseen && activeStart(&s.Attempt, left.pod) == nil:
		return "", ""
	case limit == nil:
		return "", "the proxy of its model left no report, so its cost is not known"
	}
	rest := max(limit.micros-microsOf(s.TotalCostUSD), 0) + microsOf(s.Attempt.CostUSD)
	return formatDollars(rest), fmt.Sprintf("the proxy of its model left no report, so it counts with the rest of the budget, %s US dollars", formatDollars(rest))
}

// AddedCost returns how many dollars a status adds to the cost in an earlier status of the same session.
func AddedCost(before, after *v1alpha1.AgenticSessionStatus) float64 {
	return float64(max(microsOf(after.TotalCostUSD)-microsOf(before.TotalCostUSD), 0)) / microsPerDollar
}

const (
	// startupAllowance is the time that a Job has, beyond the session's remaining time, until its runner starts. While
	// its Pod waits, the operator renews the allowance when half of it has passed. If no operator runs when the runner
	// starts, the runner exceeds the session's time by at most this allowance.
	startupAllowance = time.Hour
	// maxDeadlineSeconds (10 years) fits into a time.Duration.
	maxDeadlineSeconds = 10 * 365 * 24 * 60 * 60

	defaultTimeout        = 4 * time.Hour
	defaultStartupTimeout = 10 * time.Minute
)

// TimeoutOf returns how long a session may run; 0 means no limit. A fraction of a second counts as a second.
func TimeoutOf(spec *v1alpha1.AgenticSessionSpec) time.Duration {
	timeout := decision.DurationOr(spec.Limits.Timeout, defaultTimeout)
	return (timeout + time.Second - 1).Truncate(time.Second)
}

func startupTimeoutOf(spec *v1alpha1.AgenticSessionSpec) time.Duration {
	return decision.DurationOr(spec.Limits.StartupTimeout, defaultStartupTimeout)
}

// JobDeadline is the activeDeadlineSeconds of a Job; nil for none.
type JobDeadline struct {
	Job     *batchv1.Job
	Seconds *int64
}

// remainingSeconds returns how long the session may still run; false if its time is not limited.
func remainingSeconds(o *Observation, status *v1alpha1.AgenticSessionStatus) (seconds int64, limited bool) {
	allowed := int64(TimeoutOf(&o.Session.Spec).Seconds())
	if limit := runnerLimits(o, status).Timeout; limit != nil && limit.Duration.Duration > 0 && (allowed == 0 || int64(limit.Seconds()) < allowed) {
		allowed = max(int64(limit.Seconds()), 1)
	}
	return max(min(allowed, maxDeadlineSeconds)-int64(status.ActiveDuration.Seconds()), 0), allowed != 0
}

// deadlineOf returns the activeDeadlineSeconds that the Job should have: the session's remaining time, from the start of
// its runner; nil for none.
func deadlineOf(f *facts, status *v1alpha1.AgenticSessionStatus, job *batchv1.Job, timer *decision.Timer) *int64 {
	left, limited := remainingSeconds(&f.Observation, status)
	if !limited {
		return nil
	}
	start := cmp.Or(status.Attempt.StartTime, &f.now).Time
	if since := status.Attempt.ActiveSince; since != nil {
		return new(secondsBetween(start, since.Time) + left)
	}
	current, waited := job.Spec.ActiveDeadlineSeconds, secondsBetween(start, f.now.Time)
	allowance := int64(startupAllowance / time.Second)
	if current != nil && *current <= waited+left+allowance &&
		!timer.HasReached(start.Add(time.Duration(*current-left-allowance/2)*time.Second)) {
		return current
	}
	timer.RequeueWithin(startupAllowance / 2)
	return new(waited + left + allowance)
}

// secondsBetween is rounded up, so that no attempt gets time that another attempt used.
func secondsBetween(start, end time.Time) int64 {
	return int64(max(end.Sub(start)+time.Second-1, 0) / time.Second)
}
