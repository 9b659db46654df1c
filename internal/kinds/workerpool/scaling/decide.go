package scaling

import (
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Decide returns the desired number of workers.
func Decide(in Observation) Decision {
	in = sanitizeObservation(in)
	d := Decision{Recommended: in.Replicas, Memory: in.Memory}
	memory := &d.Memory
	memory.Recommendations = slices.Clone(memory.Recommendations)
	if in.PodStart == 0 {
		in.PodStart = memory.PodStart
	}
	memory.PodStart = in.PodStart
	if len(memory.Recommendations) == 0 && in.Replicas > 0 {
		memory.ResumedAt = in.Now
	}
	n := replicaTarget{value: in.Replicas, reason: ReasonDemand}
	n.lower, n.upper = in.Settings.bounds()
	if in.Stats == nil {
		n.applyFallback(in, memory)
	} else {
		memory.MissingSince = time.Time{}
		memory.Rates.updateRates(in)
		n.value, d.Target, d.Formula = demandedReplicas(in, &memory.Rates)
		d.Recommended = n.value
		n.applyLimits(in, memory)
		memory.Recommendations.addRecommendation(in, n.value)
		n.applySaturation(in, in.Memory.Saturation, &memory.Rates)
		switch {
		case n.value > in.Replicas:
			memory.ScaleDown = ScaleRamp{}
			n.scaleUp(in, memory)
		case n.value < in.Replicas:
			memory.ScaleUp = ScaleRamp{}
			n.scaleDown(in, memory)
		}
		memory.Saturation.updateSaturation(in, &memory.Rates, n.value > in.Replicas)
	}
	d.Applied, d.WouldApply, d.Reason = n.value, n.value, n.reason
	if in.Settings.Suspended {
		d.Applied, d.Reason = in.Replicas, ReasonSuspended
	}
	return d
}

// replicaTarget is the number of workers after the rules so far, the reason, and the bounds of the settings.
type replicaTarget struct {
	value        int32
	reason       Reason
	lower, upper int32
}

func (n *replicaTarget) lowerTo(bound int32, reason Reason) {
	if n.value > bound {
		n.value, n.reason = bound, reason
	}
}

func (n *replicaTarget) raiseTo(bound int32, reason Reason) {
	if n.value < bound {
		n.value, n.reason = bound, reason
	}
}

// bounds returns the bounds of the number of workers. Upper bounds take precedence.
func (p *Settings) bounds() (lower, upper int32) {
	upper = p.MaxReplicas
	if p.Budget != nil {
		upper = min(upper, max(*p.Budget, 0))
	}
	return min(p.MinReplicas, upper), upper
}

// Bounds that prevent overflows.
const (
	minBacklogPerReplica = 0.001

	maxReplicas = 1_000_000
	maxMessages = 1_000_000_000_000
)

// sanitizeObservation corrects impossible values, because neither user input nor brokers can be trusted.
func sanitizeObservation(in Observation) Observation {
	p := &in.Settings
	p.Concurrency = max(p.Concurrency, 1)
	p.WaitP95 = max(p.WaitP95, time.Second)
	p.MaxReplicas = min(max(p.MaxReplicas, 0), maxReplicas)
	p.MinReplicas = min(max(p.MinReplicas, 0), maxReplicas)
	in.Replicas = min(max(in.Replicas, 0), maxReplicas)
	in.Ready = min(max(in.Ready, 0), in.Replicas)
	in.PodStart = max(in.PodStart, 0)
	if in.Stats != nil {
		f := *in.Stats
		f.Backlog, f.Running = min(max(f.Backlog, 0), maxMessages), min(max(f.Running, 0), maxMessages)
		f.Unaccounted = min(max(f.Unaccounted, 0), maxMessages)
		if !(f.ReturnRate >= 0 && f.ReturnRate <= maxMessages) {
			f.ReturnRate = 0
		}
		if f.BacklogPerReplica > 0 {
			f.BacklogPerReplica = min(max(f.BacklogPerReplica, minBacklogPerReplica), maxMessages)
		} else { // also if it is NaN
			f.BacklogPerReplica = 0
		}
		f.OldestAge, f.ServiceTime = max(f.OldestAge, 0), max(f.ServiceTime, 0)
		in.Stats = &f
	}
	return in
}

func roundUpReplicas(n float64) int32 {
	if math.IsNaN(n) || n <= 0 {
		return 0
	}
	// Computed values are inexact: 3.0000001 counts as 3.
	return int32(min(math.Ceil(n-1e-6), maxReplicas))
}

// applyFallback keeps the number of workers while stats are unavailable, because an unknown backlog is not zero. After
// fallback.after, it applies the fallback as a lower bound. It discards the counters, because their changes in this time
// are unknown.
func (n *replicaTarget) applyFallback(in Observation, memory *Memory) {
	n.reason = ReasonStatsUnavailable
	since, fallback := in.Memory.MissingSince, in.Settings.Fallback
	if fallback != nil && !since.IsZero() && in.Now.Sub(since) >= fallback.After {
		n.raiseTo(min(fallback.Replicas, n.upper), ReasonFallback)
	}
	n.raiseTo(n.lower, ReasonMinReplicas)
	memory.Rates.MeasuredAt, memory.IdleSince = time.Time{}, time.Time{}
	if since.IsZero() || since.After(in.Now) {
		memory.MissingSince = in.Now
	}
}

const (
	// minClearingTime is the shortest time in which a backlog should be cleared, even if it misses the objective.
	minClearingTime = 4 * time.Second
	// scaleDownMargin is the relative growth of arrivals with which a pool without its last worker has to keep up. The
	// tolerances are less than a worker in a small pool: without this margin, a load that needs nearly a whole number of
	// workers would start and stop a worker all the time.
	scaleDownMargin = 0.05
	// dueRetriesGrowth is the number of recommended handlers per running handler while retries are due. It exceeds
	// scaleUpTolerance.
	dueRetriesGrowth = 1.25
)

// demandedReplicas returns the recommendation: enough workers to keep up with arrivals at the
// target utilization, and enough to keep up and clear the backlog in the time that is left of
// the objective. The larger number is sufficient for both, because the capacity that the
// utilization leaves free also serves the backlog. Messages that workers return arrive again.
//
// The broker does not count the retries that are due. While there are any, the pool grows from the running handlers:
// free handlers would take the retries at once.
//
// The target of messages per worker is another lower bound.
//
// The formula has the values of all terms, for users.
func demandedReplicas(in Observation, rates *Rates) (recommended int32, target Target, formula string) {
	f, p := in.Stats, in.Settings
	slots := float64(f.Running)
	if f.RetriesDue {
		slots *= dueRetriesGrowth
	}
	service, isMeasured := rates.serviceTimeOrDefault().Seconds(), rates.serviceTime() > 0
	target = targetOf(in, rates)
	formula = fmt.Sprintf("B = %d waiting messages, the oldest for %s, F = %d running; ", f.Backlog, f.OldestAge.Round(time.Millisecond), f.Running)
	terms := fmt.Sprintf("; F: %s handlers", formatNumber(slots))
	if isMeasured || target.BacklogPerReplica == 0 {
		keepUp := (rates.forecastRate(in.PodStart) + f.ReturnRate) / targetUtilization
		// Until a Pod that is created now becomes ready, the backlog grows if more messages arrive than the current
		// workers can handle.
		can := float64(in.Replicas) * float64(p.Concurrency) / service
		backlog := float64(f.Backlog) + max(0, rates.LatestRate+f.ReturnRate-can)*in.PodStart.Seconds()
		clearingTime := max(p.WaitP95-f.OldestAge-in.PodStart, minClearingTime)
		clearUp := rates.ArrivalRate + f.ReturnRate + backlog/clearingTime.Seconds()
		slots = max(slots, service*max(keepUp, clearUp))
		formula += fmt.Sprintf("λ = %s arriving messages per second, s = %ss service time, ρ = %s utilization, Pod start %s; ",
			formatNumber(rates.ArrivalRate+f.ReturnRate), formatNumber(service), formatNumber(targetUtilization), in.PodStart.Round(time.Millisecond))
		terms += fmt.Sprintf("; to keep up with arrivals, s·λ/ρ: %s handlers; to clear the backlog in T = %s, s·(λ + B/T): %s handlers",
			formatNumber(service*keepUp), clearingTime.Round(time.Millisecond), formatNumber(service*clearUp))
		if roundUpReplicas(slots/float64(p.Concurrency)) == in.Replicas-1 {
			margin := min(service*keepUp*(1+scaleDownMargin), float64(in.Replicas)*float64(p.Concurrency))
			slots = max(slots, margin)
			terms += fmt.Sprintf("; to stop a worker, which takes %.0f %% more arrivals: %s handlers", 100*scaleDownMargin, formatNumber(margin))
		}
	}
	recommended = roundUpReplicas(slots / float64(p.Concurrency))
	formula += fmt.Sprintf("c = %d handlers per worker%s; largest / c: %d workers", p.Concurrency, terms, recommended)
	if target.BacklogPerReplica == 0 {
		return recommended, target, formula
	}
	byTarget := roundUpReplicas(float64(f.Backlog+f.Running) / target.BacklogPerReplica)
	formula += fmt.Sprintf("; (B + F)/%s: %d workers", formatNumber(target.BacklogPerReplica), byTarget)
	if byTarget < recommended && isMeasured {
		target = Target{Source: TargetServiceTime}
	}
	return max(recommended, byTarget), target, formula
}

// targetOf returns the target of the recommendation. No service time is assumed for the messages of a source, which may
// take milliseconds or hours.
func targetOf(in Observation, rates *Rates) Target {
	switch p := in.Settings; {
	case p.BacklogPerReplica > 0:
		return Target{float64(p.BacklogPerReplica), TargetBacklogPerReplica}
	case in.Stats.BacklogPerReplica > 0:
		return Target{in.Stats.BacklogPerReplica, TargetFromSource}
	case rates.serviceTime() > 0:
		return Target{Source: TargetServiceTime}
	case p.DefaultBacklogPerReplica > 0:
		return Target{float64(p.DefaultBacklogPerReplica), TargetDefault}
	default:
		return Target{Source: TargetAssumedServiceTime}
	}
}

// IsIdle reports whether no message is due or handled.
func (s *BacklogStats) IsIdle() bool { return s.Backlog+s.Running+s.Unaccounted == 0 }

// applyLimits removes workers for which the limits of the queues leave no messages, and then applies the idle rule and
// the bounds.
//
// The idle rule keeps one worker until the pool had no work for idleAfter. A pool without workers stays at zero until a
// message is due, regardless of earlier arrivals. Messages that wait for a retry count as backlog when they are due,
// and then scale the pool from zero.
func (n *replicaTarget) applyLimits(in Observation, memory *Memory) {
	s, p := in.Stats, in.Settings
	if service := memory.Rates.serviceTime(); p.RatePerSecond > 0 && service > 0 {
		slots := p.RatePerSecond * service.Seconds() / targetUtilization
		n.lowerTo(max(1, roundUpReplicas(slots/float64(p.Concurrency))), ReasonRateLimit)
	}
	if p.MaxInFlight > 0 {
		n.lowerTo(roundUpReplicas(float64(p.MaxInFlight)/float64(p.Concurrency)), ReasonMaxInFlight)
	}

	switch {
	case !s.IsIdle():
		memory.IdleSince = time.Time{}
	case memory.IdleSince.IsZero(), memory.IdleSince.After(in.Now):
		memory.IdleSince = in.Now
	}
	switch {
	case !s.IsIdle():
		n.raiseTo(1, ReasonDemand)
	case in.Replicas == 0, in.Now.Sub(memory.IdleSince) >= p.IdleAfter:
		n.value, n.reason = 0, ReasonIdle
	default:
		n.raiseTo(1, ReasonIdleAfter)
	}

	n.raiseTo(p.MinReplicas, ReasonMinReplicas)
	n.lowerTo(p.MaxReplicas, ReasonMaxReplicas)
	n.lowerTo(n.upper, ReasonBudget)
}

const (
	// scaleUpTolerance and scaleDownTolerance are the relative changes below which the pool does
	// not scale, because arrivals fluctuate.
	scaleUpTolerance   = 0.22
	scaleDownTolerance = 0.2
	// startingTolerance replaces scaleUpTolerance while workers start: the pool scales up only if twice as many are
	// needed.
	startingTolerance = 1
)

// scaleUp scales up to the lowest recommendation of the window, limited by the step.
func (n *replicaTarget) scaleUp(in Observation, memory *Memory) {
	tolerance := scaleUpTolerance
	if in.Ready < in.Replicas {
		tolerance = startingTolerance
	}
	// At the upper bound, waiting gains nothing.
	worthwhile := min(float64(in.Replicas)*(1+tolerance), float64(n.upper))
	if in.Replicas > 0 && in.Replicas >= n.lower && float64(n.value) < worthwhile {
		n.value, n.reason = in.Replicas, ReasonWithinTolerance
		return
	}
	rule := in.Settings.ScaleUp
	if rule.Window > 0 && in.Replicas > 0 {
		lowest := int32(maxReplicas)
		for _, span := range memory.Recommendations.since(in.Now.Add(-rule.Window)) {
			lowest = min(lowest, span.Min)
		}
		n.lowerTo(max(in.Replicas, lowest), ReasonStabilizationWindow)
	}
	if n.value > in.Replicas {
		n.lowerTo(in.Replicas+memory.ScaleUp.allowedChange(in, rule, n.value-in.Replicas), ReasonMaxStep)
	}
	n.raiseTo(n.lower, ReasonMinReplicas)
}

// scaleDown scales down to the highest recommendation of the window, limited by the step, and not below the number of
// busy workers unless a bound is lower. An idle pool scales to zero at once.
func (n *replicaTarget) scaleDown(in Observation, memory *Memory) {
	if n.reason == ReasonIdle {
		return
	}
	rule, reason := in.Settings.ScaleDown, n.reason
	begin, highest := in.Now.Add(-rule.Window), int32(0)
	for _, span := range memory.Recommendations.since(begin) {
		highest = max(highest, span.Max)
	}
	// The beginning of the window is unknown, or the rates of an operator that has just started still grow.
	if memory.Recommendations[0].Start.After(begin) || in.Now.Sub(memory.ResumedAt) < settledRates {
		n.raiseTo(min(in.Replicas, n.upper), ReasonStabilizationWindow)
	}
	n.raiseTo(min(highest, in.Replicas, n.upper), ReasonStabilizationWindow)
	busy := roundUpReplicas(float64(in.Stats.Running) / float64(in.Settings.Concurrency))
	n.raiseTo(min(busy, in.Replicas, n.upper), ReasonBusy)
	if n.value == in.Replicas {
		return
	}
	if float64(n.value) > float64(in.Replicas)*(1-scaleDownTolerance) && in.Replicas <= n.upper {
		if n.reason == reason {
			n.reason = ReasonWithinTolerance
		}
		n.value = in.Replicas
		return
	}
	n.raiseTo(in.Replicas-memory.ScaleDown.allowedChange(in, rule, in.Replicas-n.value), ReasonMaxStep)
}

// secondChangeDivisor limits a change that may be followed by another change in the same period to a part of the step.
const secondChangeDivisor = 3

// allowedChange returns by how much the number of workers may change now, so that the changes of a period together are
// at most one step. A period has one change, because each change moves messages between workers. If it used only a
// small part of the step, a second change may use the rest: a pool must not keep workers because it stopped a worker
// just before its load ended. A change within two periods of the start of the last period belongs to the same ramp.
func (r *ScaleRamp) allowedChange(in Observation, rule ScaleRule, wanted int32) int32 {
	if rule.Step == nil {
		return maxReplicas
	}
	since := in.Now.Sub(r.PeriodStart)
	if since < 0 || since > 2*rule.Period { // or there was no period
		r.StartReplicas = in.Replicas
		since = rule.Period
	}
	if since >= rule.Period {
		r.PeriodStart, r.PeriodReplicas = in.Now, in.Replicas
	}
	step := int32(maxReplicas) // also for an invalid step, which the API server rejects
	if count, err := intstr.GetScaledValueFromIntOrPercent(rule.Step, int(r.StartReplicas), true); err == nil {
		step = int32(min(max(count, 1), maxReplicas))
	}
	changed := max(in.Replicas-r.PeriodReplicas, r.PeriodReplicas-in.Replicas)
	left := max(0, step-changed)
	if changed > 0 && (wanted < left || changed > step/secondChangeDivisor) {
		return 0
	}
	return left
}
