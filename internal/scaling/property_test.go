package scaling

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A run that fails is played again by -seed.
var (
	seed = flag.Uint64("seed", 0, "play this random run only")
	runs = flag.Uint64("runs", 300, "how many random runs are played")
)

// Whatever policies, figures, gaps, restarts and clocks there are, at each moment what
// is promised about a decision holds.
func TestPromisesHoldAtRandom(t *testing.T) {
	first, last := uint64(1), *runs
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last; s++ {
		r := rand.New(rand.NewPCG(s, 0))
		in := Input{Now: noon, Policy: anyPolicy(r)}
		for range 200 {
			in = next(r, in)
			d := Decide(in)
			if problem := broken(r, in, d); problem != "" {
				t.Fatalf("-seed %d: %s\ninput: %+v\nfigures: %+v\ndecision: %+v", s, problem, in, in.Figures, d)
			}
			in.Memory, in.Replicas = d.Memory, d.Applied
		}
	}
}

// next is what comes after some time: other figures, or none, perhaps another process
// that only knows what was stored, perhaps another policy.
func next(r *rand.Rand, in Input) Input {
	in.Now = in.Now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
	switch r.IntN(40) {
	case 0:
		in.Now = in.Now.Add(time.Duration(r.IntN(600)) * time.Second)
	case 1:
		in.Now = in.Now.Add(-time.Duration(r.IntN(60)) * time.Second)
	case 2:
		in.Memory = Recall(Store(in.Memory))
	case 3:
		in.Memory = Memory{}
	case 4:
		in.Policy = anyPolicy(r)
	}
	in.Ready = int32(r.IntN(int(in.Replicas) + 1))
	in.PodStart = time.Duration(r.IntN(30)) * time.Second
	in.Figures = anyFigures(r, in)
	return in
}

func anyFigures(r *rand.Rand, in Input) *Figures {
	if r.IntN(10) == 0 {
		return nil
	}
	f := &Figures{
		InFlight:  int64(r.IntN(1 + int(in.Replicas)*int(in.Policy.Concurrency))),
		OldestAge: time.Duration(r.IntN(100)) * time.Second,
	}
	if r.IntN(3) > 0 {
		f.Backlog = int64(r.IntN(5000))
	}
	if r.IntN(4) > 0 {
		f.Finished = new(on(in.Memory.Rates.Finished) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) > 0 {
		f.Arrived = new(on(in.Memory.Rates.Arrived) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) == 0 {
		f.ServiceTime = time.Duration(r.IntN(20000)) * time.Millisecond
	}
	return f
}

// on goes a counter from where it was.
func on(before *int64) int64 {
	if before == nil {
		return 0
	}
	return *before
}

func anyPolicy(r *rand.Rand) Policy {
	p := Policy{
		Min: int32(r.IntN(5)), Concurrency: 1 + int32(r.IntN(20)), WaitP95: time.Duration(1+r.IntN(60)) * time.Second,
		Utilization: 0.1 + 0.9*r.Float64(), IdleAfter: time.Duration(r.IntN(120)) * time.Second,
		Up: anyRule(r), Down: anyRule(r),
	}
	p.Max = p.Min + int32(r.IntN(50))
	if r.IntN(4) == 0 {
		p.Budget = new(int32(r.IntN(30)))
	}
	if r.IntN(4) == 0 {
		p.BacklogPerReplica = 1 + int32(r.IntN(500))
	}
	if r.IntN(4) == 0 {
		p.Fallback = &Fallback{Replicas: int32(r.IntN(20)), After: time.Duration(r.IntN(60)) * time.Second}
	}
	if r.IntN(4) == 0 {
		p.RatePerSecond = 100 * r.Float64()
	}
	if r.IntN(4) == 0 {
		p.MaxInFlight = int64(1 + r.IntN(200))
	}
	return p
}

func anyRule(r *rand.Rand) Rule {
	rule := Rule{Window: time.Duration(r.IntN(120)) * time.Second, Period: time.Duration(r.IntN(60)) * time.Second}
	switch r.IntN(3) {
	case 0:
		rule.Step.Count = 1 + int32(r.IntN(5))
	case 1:
		rule.Step.Percent = 1 + int32(r.IntN(100))
	}
	return rule
}

// broken says which promise a decision breaks; nothing, if it keeps them all.
func broken(r *rand.Rand, in Input, d Decision) string {
	p := in.Policy
	switch {
	case d.Applied > in.Replicas && d.Applied > most(p):
		return "it grows over the bounds"
	case d.Applied < least(p):
		return "it is under the bounds"
	case in.Figures == nil && d.Applied < in.Replicas:
		return "it shrinks without figures"
	case in.Figures != nil && d.Applied < min(in.Replicas, busy(in), most(p)):
		return "it shrinks below what is busy"
	case in.Figures != nil && in.Figures.Backlog > 0 && d.Applied == 0 && most(p) > 0:
		return "it sleeps while a message waits"
	case len(d.Memory.Wants) > spans+2:
		return "it remembers more and more"
	case d.Reason == "" || message(in, d) == "":
		return "it does not say why"
	}
	if again := Decide(in); !cmp.Equal(d, again) {
		return "it decides otherwise the second time: " + cmp.Diff(d, again)
	}
	if in.Figures == nil {
		return ""
	}
	more := in
	more.Figures = new(*in.Figures)
	more.Figures.Backlog += 1 + int64(r.IntN(1000))
	if with := Decide(more); with.Applied < d.Applied {
		return "it makes fewer workers of a greater backlog"
	}
	return ""
}
