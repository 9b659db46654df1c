package scaling

import (
	"time"
)

// shortestClearing is the shortest time in which a backlog is to be cleared, however late
// it already is.
const shortestClearing = 4 * time.Second

// assumedService is what a message takes as long as none has been finished.
const assumedService = time.Second

// demand is how many workers the figures ask for: enough to keep up with what arrives
// at the wanted utilization, and enough to keep up and clear the backlog within what is
// left of the objective. The room that utilization leaves serves a backlog too, so the
// greater of both is enough.
func demand(in Input, memory *Memory) int32 {
	f, p := in.Figures, in.Policy
	slots := float64(f.InFlight)
	if memory.Rates.serviceTime() > 0 || p.BacklogPerReplica == 0 {
		keepUp := memory.Rates.ahead(in.PodStart) / p.Utilization
		clearUp := memory.Rates.Arriving + expected(in, &memory.Rates)/clearing(in).Seconds()
		slots = max(slots, memory.Rates.assumedServiceTime().Seconds()*max(keepUp, clearUp))
	}
	want := replicas(slots / float64(p.Concurrency))
	if p.BacklogPerReplica > 0 {
		want = max(want, replicas(float64(f.Backlog+f.InFlight)/float64(p.BacklogPerReplica)))
	}
	return want
}

// expected is the backlog there will be when a Pod that is made now takes messages: more
// than there is, if more comes than the workers there are can do.
func expected(in Input, rates *Rates) float64 {
	can := float64(in.Replicas) * float64(in.Policy.Concurrency) / rates.assumedServiceTime().Seconds()
	excess := max(0, rates.Latest-can)
	return float64(in.Figures.Backlog) + excess*in.PodStart.Seconds()
}

// clearing is the time in which the backlog is to be cleared.
func clearing(in Input) time.Duration {
	return max(in.Policy.WaitP95-in.Figures.OldestAge-in.PodStart, shortestClearing)
}

// busy is how many workers it takes to hold what is in flight.
func busy(in Input) int32 {
	return replicas(float64(in.Figures.InFlight) / float64(in.Policy.Concurrency))
}
