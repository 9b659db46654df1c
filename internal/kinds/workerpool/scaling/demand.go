package scaling

import (
	"time"
)

// minClearingTime is the shortest time in which a backlog should be cleared, even if it misses the objective.
const minClearingTime = 4 * time.Second

// defaultServiceTime is the assumed service time until it is known.
const defaultServiceTime = time.Second

// dueRetriesGrowth is the number of recommended handlers per running handler while retries are due. It exceeds
// scaleUpTolerance.
const dueRetriesGrowth = 1.25

// demandedReplicas returns the recommendation: enough workers to keep up with arrivals at the
// target utilization, and enough to keep up and clear the backlog in the time that is left of
// the objective. The larger number is sufficient for both, because the capacity that the
// utilization leaves free also serves the backlog. Messages that workers return arrive again.
//
// The broker does not count the retries that are due. While there are any, the pool grows from the running handlers:
// free handlers would take the retries at once.
//
// The target of messages per worker is another lower bound.
func demandedReplicas(in Observation, memory *Memory) (int32, Target) {
	f, p := in.Stats, in.Settings
	slots := float64(f.Running)
	if f.RetriesDue {
		slots *= dueRetriesGrowth
	}
	target := targetOf(in, &memory.Rates)
	if memory.Rates.serviceTime() > 0 || target.BacklogPerReplica == 0 {
		keepUp := (memory.Rates.forecastRate(in.PodStart) + f.ReturnRate) / p.Utilization
		clearUp := memory.Rates.ArrivalRate + f.ReturnRate + expectedBacklog(in, &memory.Rates)/clearingTime(in).Seconds()
		slots = max(slots, memory.Rates.serviceTimeOrDefault().Seconds()*max(keepUp, clearUp))
	}
	recommended := roundUpReplicas(slots / float64(p.Concurrency))
	if target.BacklogPerReplica == 0 {
		return recommended, target
	}
	byTarget := roundUpReplicas(float64(f.Backlog+f.Running) / target.BacklogPerReplica)
	if byTarget < recommended && memory.Rates.serviceTime() > 0 {
		return recommended, Target{Source: TargetServiceTime}
	}
	return max(recommended, byTarget), target
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

// expectedBacklog returns the backlog at the time when a Pod that is created now becomes ready. It grows if more
// messages arrive than the current workers can handle.
func expectedBacklog(in Observation, rates *Rates) float64 {
	can := float64(in.Replicas) * float64(in.Settings.Concurrency) / rates.serviceTimeOrDefault().Seconds()
	excess := max(0, rates.LatestRate+in.Stats.ReturnRate-can)
	return float64(in.Stats.Backlog) + excess*in.PodStart.Seconds()
}

func clearingTime(in Observation) time.Duration {
	return max(in.Settings.WaitP95-in.Stats.OldestAge-in.PodStart, minClearingTime)
}

func busyReplicas(in Observation) int32 {
	return roundUpReplicas(float64(in.Stats.Running) / float64(in.Settings.Concurrency))
}
