package scaling

import (
	"math"
	"time"
)

// Decide returns the desired number of workers.
func Decide(in Observation) Decision {
	in = sanitizeObservation(in)
	d := decideActive(in)
	d.WouldApply = d.Applied
	switch {
	case in.Now.Before(in.Settings.PausedUntil):
		d.Applied, d.Reason = in.Replicas, ReasonPaused
	case in.Settings.DryRun:
		d.Applied, d.Reason = in.Replicas, ReasonDryRun
	}
	return d
}

func decideActive(in Observation) Decision {
	d := Decision{Recommended: in.Replicas, Memory: in.Memory.cloneMemory()}
	n := replicaTarget{in.Replicas, ReasonDemand}
	if in.Stats == nil {
		d.Memory.resetCounters(in.Now)
		n = replicasWithoutStats(in)
		d.Applied, d.Reason = n.value, n.reason
		d.setMeasuredRates()
		return d
	}
	d.Memory.MissingSince = time.Time{}
	d.Memory.updateRates(in)
	d.setMeasuredRates()
	d.ArrivalRate += in.Stats.ReturnRate

	n.value, d.Target = demandedReplicas(in, &d.Memory)
	d.Recommended = n.value
	n.applyQueueLimits(in, d.ServiceTime)
	n.applyIdleRule(in, &d.Memory)
	n.applyBounds(in)
	d.Memory.Recommendations.addRecommendation(in.Now, n.value, longestWindow(in.Settings))
	n.applySaturation(in, in.Memory.Saturation, &d.Memory.Rates)
	switch {
	case n.value > in.Replicas:
		d.Memory.ScaleDown = ScaleRamp{}
		n.scaleUp(in, &d.Memory)
	case n.value < in.Replicas:
		d.Memory.ScaleUp = ScaleRamp{}
		n.scaleDown(in, &d.Memory)
	}
	d.Memory.Saturation.updateSaturation(in, &d.Memory.Rates, n.value > in.Replicas)
	d.Applied, d.Reason = n.value, n.reason
	return d
}

func (d *Decision) setMeasuredRates() {
	d.ArrivalRate = d.Memory.Rates.ArrivalRate
	d.ServiceTime = d.Memory.Rates.serviceTime()
}

// replicaTarget is the number of workers after the rules so far, and the reason.
type replicaTarget struct {
	value  int32
	reason Reason
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
	if !(p.Utilization > 0.01 && p.Utilization <= 1) {
		p.Utilization = 1
	}
	p.MaxReplicas = min(max(p.MaxReplicas, 0), maxReplicas)
	p.MinReplicas = min(max(p.MinReplicas, 0), maxReplicas)
	in.Replicas = min(max(in.Replicas, 0), maxReplicas)
	in.Ready = min(max(in.Ready, 0), in.Replicas)
	in.PodStart = max(in.PodStart, 0)
	if in.Stats != nil {
		f := *in.Stats
		f.Backlog, f.Running = min(max(f.Backlog, 0), maxMessages), min(max(f.Running, 0), maxMessages)
		f.Unaccounted = min(max(f.Unaccounted, 0), maxMessages)
		f.ActivationThreshold = min(max(f.ActivationThreshold, 0), maxMessages)
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
