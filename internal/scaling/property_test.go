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
	propertySeed = flag.Uint64("seed", 0, "play this random run only")
	propertyRuns = flag.Uint64("runs", 300, "how many random runs are played")
)

// Whatever policies, figures, gaps, restarts and clocks there are, at each moment what
// is promised about a decision holds.
func TestPromisesHoldAtRandom(t *testing.T) {
	first, last := uint64(1), *propertyRuns
	if *propertySeed != 0 {
		first, last = *propertySeed, *propertySeed
	}
	for s := first; s <= last; s++ {
		r := rand.New(rand.NewPCG(s, 0))
		in := Observation{Now: testTime, Settings: randomSettings(r)}
		for range 200 {
			in = nextObservation(r, in)
			d := Decide(in)
			if problem := findViolation(r, in, d); problem != "" {
				t.Fatalf("-seed %d: %s\ninput: %+v\nfigures: %+v\ndecision: %+v", s, problem, in, in.Stats, d)
			}
			in.Memory, in.Replicas = d.Memory, d.Applied
		}
	}
}

// nextObservation is what comes after some time: other figures, or none, perhaps another process
// that only knows what was stored, perhaps another policy.
func nextObservation(r *rand.Rand, in Observation) Observation {
	in.Now = in.Now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
	switch r.IntN(40) {
	case 0:
		in.Now = in.Now.Add(time.Duration(r.IntN(600)) * time.Second)
	case 1:
		in.Now = in.Now.Add(-time.Duration(r.IntN(60)) * time.Second)
	case 2:
		in.Memory = RestoreMemory(StoreMemory(in.Memory))
	case 3:
		in.Memory = Memory{}
	case 4:
		in.Settings = randomSettings(r)
	}
	in.Ready = int32(r.IntN(int(in.Replicas) + 1))
	in.PodStart = time.Duration(r.IntN(30)) * time.Second
	in.Stats = randomStats(r, in)
	return in
}

func randomStats(r *rand.Rand, in Observation) *BacklogStats {
	if r.IntN(10) == 0 {
		return nil
	}
	f := &BacklogStats{
		InFlight:  int64(r.IntN(1 + int(in.Replicas)*int(in.Settings.Concurrency))),
		OldestAge: time.Duration(r.IntN(100)) * time.Second,
	}
	if r.IntN(3) > 0 {
		f.Backlog = int64(r.IntN(5000))
	}
	if r.IntN(4) > 0 {
		f.Finished = new(increasedCounter(in.Memory.Rates.Finished) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) > 0 {
		f.Arrived = new(increasedCounter(in.Memory.Rates.Arrived) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) == 0 {
		f.ServiceTime = time.Duration(r.IntN(20000)) * time.Millisecond
	}
	return f
}

// increasedCounter goes a counter from where it was.
func increasedCounter(before *int64) int64 {
	if before == nil {
		return 0
	}
	return *before
}

func randomSettings(r *rand.Rand) Settings {
	p := Settings{
		MinReplicas: int32(r.IntN(5)), Concurrency: 1 + int32(r.IntN(20)), WaitP95: time.Duration(1+r.IntN(60)) * time.Second,
		Utilization: 0.1 + 0.9*r.Float64(), IdleAfter: time.Duration(r.IntN(120)) * time.Second,
		ScaleUp: randomRule(r), ScaleDown: randomRule(r),
	}
	p.MaxReplicas = p.MinReplicas + int32(r.IntN(50))
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

func randomRule(r *rand.Rand) ScaleRule {
	rule := ScaleRule{Window: time.Duration(r.IntN(120)) * time.Second, Period: time.Duration(r.IntN(60)) * time.Second}
	switch r.IntN(3) {
	case 0:
		rule.Step.Count = 1 + int32(r.IntN(5))
	case 1:
		rule.Step.Percent = 1 + int32(r.IntN(100))
	}
	return rule
}

// findViolation says which promise a decision breaks; nothing, if it keeps them all.
func findViolation(r *rand.Rand, in Observation, d Decision) string {
	p := in.Settings
	switch {
	case d.Applied > in.Replicas && d.Applied > effectiveMax(p):
		return "it grows over the bounds"
	case d.Applied < effectiveMin(p):
		return "it is under the bounds"
	case in.Stats == nil && d.Applied < in.Replicas:
		return "it shrinks without figures"
	case in.Stats != nil && d.Applied < min(in.Replicas, busyReplicas(in), effectiveMax(p)):
		return "it shrinks below what is busy"
	case in.Stats != nil && in.Stats.Backlog > 0 && d.Applied == 0 && effectiveMax(p) > 0:
		return "it sleeps while a message waits"
	case len(d.Memory.Recommendations) > spansPerWindow+2:
		return "it remembers more and more"
	case d.Reason == "" || decisionMessage(in, d) == "":
		return "it does not say why"
	}
	if again := Decide(in); !cmp.Equal(d, again) {
		return "it decides otherwise the second time: " + cmp.Diff(d, again)
	}
	if in.Stats == nil {
		return ""
	}
	more := in
	more.Stats = new(*in.Stats)
	more.Stats.Backlog += 1 + int64(r.IntN(1000))
	if with := Decide(more); with.Applied < d.Applied {
		return "it makes fewer workers of a greater backlog"
	}
	return ""
}
