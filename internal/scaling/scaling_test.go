package scaling

import (
	"time"
)

// noon is when the tests begin.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// usual is a policy with the defaults: 0 to 20 workers, ten messages each.
func usual() Policy {
	return Policy{
		Max: 20, Concurrency: 10, WaitP95: 30 * time.Second, Utilization: 0.8, IdleAfter: time.Minute, Down: defaultDown,
	}
}

// known is a memory of messages that take a second and arrive at a rate, and of nothing
// that was wanted for an hour.
func known(rate float64) Memory {
	return Memory{
		Rates: Rates{Worked: 100, Ended: 100, Arriving: rate, Earlier: rate},
		Wants: Wants{{Start: noon.Add(-time.Hour)}},
	}
}

// at is an input at noon, of so many workers, all of them ready.
func at(replicas int32, f *Figures, m Memory, changes ...func(p *Policy)) Input {
	in := Input{Now: noon, Policy: usual(), Replicas: replicas, Ready: replicas, PodStart: 10 * time.Second, Figures: f, Memory: m}
	for _, change := range changes {
		change(&in.Policy)
	}
	return in
}

// outcome is what most tests compare.
type outcome struct {
	Want, Applied int32
	Reason        Reason
}

func outcomeOf(in Input) outcome {
	d := Decide(in)
	return outcome{d.Want, d.Applied, d.Reason}
}
