package agenticsession

import (
	"time"
)

const (
	simulatedInactivitySeconds = 60
	// simulatedIdleDelay is longer than the operator takes to observe that a runner is idle: after a crash, it counts from
	// the restart what it had not recorded yet.
	simulatedIdleDelay = simulatedDelay + activityPrecision
)

// simulatedLease is the session's Lease.
type simulatedLease struct {
	renewTime time.Time
	cost      string
	// observed is what the operator's process remembers of it; nil if it has not observed it.
	observed *Activity
	// isHostile means that runners also report costs that are lower than before, of another attempt, or not valid.
	isHostile bool
	// reported are the costs that runners reported, and observedCosts those that the operator observed, in millionths of
	// a dollar by Job.
	reported, observedCosts map[string]int64
}

// observe updates what the operator remembers, as its cache does.
func (l *simulatedLease) observe(now time.Time) {
	previous := l.observed
	if previous == nil {
		previous = &Activity{CreationTime: testStartTime}
	}
	next := *previous
	if next.ObservedTime.IsZero() || !next.RenewTime.Equal(l.renewTime) {
		next.RenewTime, next.ObservedTime = l.renewTime, now
	}
	next.Cost = next.Cost.Next(l.cost)
	l.observed = &next
	if job := next.Cost.Job; job != "" {
		l.observedCosts[job] = max(l.observedCosts[job], next.Cost.Micros())
	}
}

// forget simulates a new process, which observes the Lease before it reconciles.
func (l *simulatedLease) forget(now time.Time) {
	l.observed = nil
	l.observe(now)
}

// writeLease lets a runner report activity, at a time that may be wrong, and cost.
func (w *simulation) writeLease(j *simulatedJob) {
	if w.chance(50) && (!j.idle || j.renewedTime.IsZero()) {
		w.lease.renewTime, j.renewedTime = w.now.Add(time.Duration(w.rng.IntN(60)-50)*time.Hour), w.now
	}
	if !w.chance(30) {
		return
	}
	name := j.job.Name
	if w.lease.isHostile && w.chance(40) {
		w.lease.cost = []string{"", "broken", name + "=-5", name + "=0.000001", "sim-r1-a1=3", name + "=1e9"}[w.rng.IntN(6)]
		w.logf("%s reports %q", name, w.lease.cost)
		return
	}
	w.lease.reported[name] += w.rng.Int64N(300_000)
	w.lease.cost = name + "=" + string(formatDollars(w.lease.reported[name]))
	w.logf("%s reports %q", name, w.lease.cost)
	if limit := w.session.Spec.Limits.MaxCostUSD; limit != nil && j.overLimitTime.IsZero() && w.closedCosts(name)+w.lease.reported[name] >= microsOf(limit) {
		j.overLimitTime = w.now
	}
}

// closedCosts returns what the operator recorded of the attempts before this Job's.
func (w *simulation) closedCosts(job string) (micros int64) {
	micros = microsOf(w.session.Status.TotalCostUSD)
	if w.session.Status.Attempt.JobName == job {
		micros -= microsOf(w.session.Status.Attempt.CostUSD)
	}
	return micros
}

// checkCostBeforeAttempt checks the cost when the Job of an attempt is created. An attempt whose Job a user deleted before
// its start was recorded gets a second Job. Its cost may not be recorded yet, but is still in the Lease.
func (w *simulation) checkCostBeforeAttempt(in *Observation, job string) {
	total := microsOf(in.Session.Status.TotalCostUSD)
	if limit := in.Session.Spec.Limits.MaxCostUSD; limit != nil && total >= microsOf(limit) {
		w.violate("an attempt starts although the session cost %d millionths of a dollar", total)
	}
	observed := int64(0)
	for name, micros := range w.lease.observedCosts {
		if name != job {
			observed += micros
		}
	}
	if observed > total && !w.lease.isHostile {
		w.violate("the recorded cost is %d, but the operator observed %d", total, observed)
	}
}

func (w *simulation) checkLimits() {
	for _, j := range w.jobs {
		if !j.isActive() || !j.isRunnerRunning() {
			continue
		}
		isIdle := w.session.Spec.Limits.InactivityTimeout != nil && !j.renewedTime.IsZero() &&
			w.now.Sub(j.renewedTime) > simulatedInactivitySeconds*time.Second
		isExpensive := !w.lease.isHostile && !j.overLimitTime.IsZero()
		switch {
		case !j.terminationTime.IsZero() && j.endReason == "deleted" && isExpensive:
			w.counts["expensive runner"]++
		case !j.terminationTime.IsZero() && j.endReason == "deleted" && isIdle:
			w.counts["idle runner"]++
		case !j.terminationTime.IsZero():
		case isExpensive && w.now.Sub(j.overLimitTime) > simulatedDelay:
			w.violate("%s continues %s after its cost reached the limit", j.job.Name, w.now.Sub(j.overLimitTime))
		case isIdle && w.now.Sub(j.renewedTime) > simulatedInactivitySeconds*time.Second+simulatedIdleDelay:
			w.violate("%s continues %s after its last activity", j.job.Name, w.now.Sub(j.renewedTime))
		}
	}
}
