package scaling

import (
	"time"
)

// minClearingTime is the shortest time in which a backlog is to be cleared, however late
// it already is.
const minClearingTime = 4 * time.Second

// defaultServiceTime is what a message takes as long as none has been finished.
const defaultServiceTime = time.Second

// demandedReplicas is how many workers the figures ask for: enough to keep up with what arrives
// at the wanted utilization, and enough to keep up and clear the backlog within what is
// left of the objective. The room that utilization leaves serves a backlog too, so the
// greater of both is enough.
func demandedReplicas(in Observation, memory *Memory) int32 {
	f, p := in.Stats, in.Settings
	slots := float64(f.InFlight)
	if memory.Rates.serviceTime() > 0 || p.BacklogPerReplica == 0 {
		keepUp := memory.Rates.forecastRate(in.PodStart) / p.Utilization
		clearUp := memory.Rates.ArrivalRate + expectedBacklog(in, &memory.Rates)/clearingTime(in).Seconds()
		slots = max(slots, memory.Rates.serviceTimeOrDefault().Seconds()*max(keepUp, clearUp))
	}
	want := roundUpReplicas(slots / float64(p.Concurrency))
	if p.BacklogPerReplica > 0 {
		want = max(want, roundUpReplicas(float64(f.Backlog+f.InFlight)/float64(p.BacklogPerReplica)))
	}
	return want
}

// expectedBacklog is the backlog there will be when a Pod that is made now takes messages: more
// than there is, if more comes than the workers there are can do.
func expectedBacklog(in Observation, rates *Rates) float64 {
	can := float64(in.Replicas) * float64(in.Settings.Concurrency) / rates.serviceTimeOrDefault().Seconds()
	excess := max(0, rates.LatestRate-can)
	return float64(in.Stats.Backlog) + excess*in.PodStart.Seconds()
}

// clearingTime is the time in which the backlog is to be cleared.
func clearingTime(in Observation) time.Duration {
	return max(in.Settings.WaitP95-in.Stats.OldestAge-in.PodStart, minClearingTime)
}

// busyReplicas is how many workers it takes to hold what is in flight.
func busyReplicas(in Observation) int32 {
	return roundUpReplicas(float64(in.Stats.InFlight) / float64(in.Settings.Concurrency))
}
