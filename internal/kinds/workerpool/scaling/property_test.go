package scaling

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// Use -seed to repeat a failed run.
var (
	propertySeed = flag.Uint64("seed", 0, "run only this random seed")
	propertyRuns = flag.Uint64("runs", 300, "number of random runs")
)

// The guarantees of a decision hold for random settings, stats, gaps, restarts and clocks.
func TestGuaranteesHoldForRandomObservations(t *testing.T) {
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
			problem := findViolation(r, in, d)
			require.True(t, problem == "", "-seed %d: %s\ninput: %+v\nstats: %+v\ndecision: %+v", s, problem, in, in.Stats, d)
			in.Memory, in.Replicas = d.Memory, d.Applied
		}
	}
}

// nextObservation returns an observation some time later, with other stats or none, possibly without a memory, or with other settings.
func nextObservation(r *rand.Rand, in Observation) Observation {
	in.Now = in.Now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
	switch r.IntN(40) {
	case 0:
		in.Now = in.Now.Add(time.Duration(r.IntN(600)) * time.Second)
	case 1:
		in.Now = in.Now.Add(-time.Duration(r.IntN(60)) * time.Second)
	case 2:
		in.Memory = Memory{IdleSince: in.Memory.IdleSince, MissingSince: in.Memory.MissingSince} // another process
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
	f := &BacklogStats{Running: int64(r.IntN(1 + int(in.Replicas)*int(in.Settings.Concurrency))), OldestAge: time.Duration(r.IntN(100)) * time.Second}
	if r.IntN(3) > 0 {
		f.Backlog = int64(r.IntN(5000))
	}
	if r.IntN(4) > 0 {
		f.Finished = new(ptr.Deref(in.Memory.Rates.Finished, 0) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) > 0 {
		f.Arrived = new(ptr.Deref(in.Memory.Rates.Arrived, 0) + int64(r.IntN(200)) - 5)
	}
	if r.IntN(4) == 0 {
		f.RetriesDue, f.ReturnRate, f.Unaccounted = f.Backlog > 0, 20*r.Float64(), int64(r.IntN(100))
	}
	if r.IntN(4) == 0 {
		f.BacklogPerReplica = 20 * r.Float64()
	}
	if r.IntN(4) == 0 {
		f.ServiceTime = time.Duration(r.IntN(20000)) * time.Millisecond
	}
	return f
}

func randomSettings(r *rand.Rand) Settings {
	p := Settings{
		MinReplicas: int32(r.IntN(5)), Concurrency: 1 + int32(r.IntN(20)), WaitP95: time.Duration(1+r.IntN(60)) * time.Second,
		IdleAfter: time.Duration(r.IntN(120)) * time.Second,
		ScaleUp:   randomRule(r), ScaleDown: randomRule(r),
	}
	p.MaxReplicas = p.MinReplicas + int32(r.IntN(50))
	if r.IntN(4) == 0 {
		p.Budget = new(int32(r.IntN(30)))
	}
	if r.IntN(4) == 0 {
		p.BacklogPerReplica = 1 + int32(r.IntN(500))
	}
	if r.IntN(2) == 0 {
		p.DefaultBacklogPerReplica = 1 + int32(r.IntN(20))
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
		rule.Step = new(intstr.FromInt32(1 + int32(r.IntN(5))))
	case 1:
		rule.Step = new(intstr.FromString(strconv.Itoa(1+r.IntN(100)) + "%"))
	}
	return rule
}

// findViolation returns the guarantee that a decision violates; or an empty string.
func findViolation(r *rand.Rand, in Observation, d Decision) string {
	p := in.Settings
	lower, upper := p.bounds()
	switch {
	case d.Applied > in.Replicas && d.Applied > upper:
		return "scales above the upper bound"
	case d.Applied < lower:
		return "is below the lower bound"
	case in.Stats == nil && d.Applied < in.Replicas:
		return "scales down without stats"
	case in.Stats != nil && d.Applied < min(in.Replicas, roundUpReplicas(float64(in.Stats.Running)/float64(in.Settings.Concurrency)), upper):
		return "scales below the busy workers"
	case in.Stats != nil && in.Stats.Backlog+in.Stats.Unaccounted > 0 && d.Applied == 0 && upper > 0:
		return "stays at zero with a backlog, or with messages that nothing announces"
	case len(d.Memory.Recommendations) > spansPerWindow+2:
		return "the memory grows without bound"
	case in.Stats != nil && (d.Target.Source == "" || (d.Target.BacklogPerReplica > 0) == (d.Target.Source == TargetServiceTime || d.Target.Source == TargetAssumedServiceTime)):
		return "does not name its target"
	case in.Stats != nil && p.DefaultBacklogPerReplica > 0 && d.Target.Source == TargetAssumedServiceTime:
		return "assumes a service time of a source"
	case len(ExplainDecision(in, d).Message) > 1024:
		return "explains the decision at a length that the API server refuses"
	case d.Reason == "" || Summarize(in, d) == "":
		return "has no reason or message"
	}
	if again := Decide(in); !cmp.Equal(d, again) {
		return "is not deterministic: " + cmp.Diff(d, again)
	}
	if in.Stats == nil {
		return ""
	}
	more := in
	more.Stats = new(*in.Stats)
	more.Stats.Backlog += 1 + int64(r.IntN(1000))
	if with := Decide(more); with.Applied < d.Applied {
		return "has fewer workers for a larger backlog"
	}
	return ""
}

// Decide neither panics nor violates a guarantee for any stats or spec.
func FuzzDecideKeepsItsGuarantees(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	in := Observation{Now: testTime, Settings: randomSettings(r)}
	for range 20 {
		in = nextObservation(r, in)
		in.Memory = Decide(in).Memory
	}
	spec := []byte(`{"minReplicas":1,"maxReplicas":20,"scaleDown":{"window":"1m","maxStep":"20%","period":"10s"}}`)
	f.Add(spec, int64(1000), int64(30), int64(5000), int64(4000), int32(3), int32(10), int64(2_000))
	f.Fuzz(func(t *testing.T, spec []byte, backlog, inFlight, arrived, finished int64, replicas, concurrency int32, millis int64) {
		autoscaling := v1alpha1.Autoscaling{}
		if json.Unmarshal(spec, &autoscaling) != nil {
			return
		}
		in := sanitizeObservation(Observation{
			Now: testTime.Add(time.Duration(millis) * time.Millisecond), Settings: NewSettings(&autoscaling, concurrency),
			Replicas: replicas, Ready: replicas, PodStart: time.Duration(millis),
			Stats:  &BacklogStats{Backlog: backlog, Running: inFlight, Arrived: &arrived, Finished: &finished, OldestAge: time.Duration(arrived)},
			Memory: in.Memory,
		})
		if in.Settings.Suspended {
			return
		}
		require.Equal(t, "", findViolation(r, in, Decide(in)))
	})
}

// fluidQueue simulates a queue with a continuous flow of messages, without randomness.
type fluidQueue struct {
	policy Settings
	// rate of arrivals per second, and service time of a message in seconds.
	rate, service float64
	// limit of the throughput of all workers together, per second; 0 means unlimited.
	limit float64

	now                                  time.Time
	memory                               Memory
	replicas, ready                      int32
	readyAt                              time.Time
	waiting, inFlight, arrived, finished float64
	changes                              int
	last                                 Decision
}

// runFor simulates a duration with a decision every two seconds.
func (f *fluidQueue) runFor(d time.Duration) {
	const start = 8 * time.Second
	for end := f.now.Add(d); f.now.Before(end); {
		if !f.now.Before(f.readyAt) {
			f.ready = f.replicas
		}
		f.last = Decide(Observation{
			Now: f.now, Settings: f.policy, Replicas: f.replicas, Ready: f.ready, PodStart: start, Memory: f.memory,
			Stats: &BacklogStats{
				Backlog: int64(f.waiting), Running: int64(f.inFlight + 0.5), Arrived: new(int64(f.arrived)), Finished: new(int64(f.finished)),
			},
		})
		f.memory = f.last.Memory
		switch {
		case f.last.Applied > f.replicas:
			f.readyAt = f.now.Add(start)
			f.changes++
		case f.last.Applied < f.replicas:
			f.changes++
		}
		f.replicas, f.ready = f.last.Applied, min(f.ready, f.last.Applied)
		f.advanceQueue(DecisionInterval.Seconds())
		f.now = f.now.Add(DecisionInterval)
	}
}

// advanceQueue simulates arrivals and processing for some seconds.
func (f *fluidQueue) advanceQueue(seconds float64) {
	const step = 0.02
	for ; seconds > 0; seconds -= step {
		started := min(f.waiting, max(0, float64(f.ready*f.policy.Concurrency)-f.inFlight))
		finished := f.inFlight / f.service * step
		if f.limit > 0 {
			finished = min(finished, f.limit*step)
		}
		f.waiting += f.rate*step - started
		f.inFlight += started - finished
		f.arrived += f.rate * step
		f.finished += finished
	}
}

// Under any constant load the number of workers becomes stable, and no backlog remains.
func TestConstantLoadLeadsToAStableNumberOfWorkers(t *testing.T) {
	for s := range *propertyRuns / 3 {
		r := rand.New(rand.NewPCG(s, 1))
		f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 0.5 + 60*r.Float64(), service: 0.2 + 5*r.Float64()}
		f.policy.Concurrency, f.policy.MaxReplicas = 1+int32(r.IntN(20)), 1000
		f.runFor(10 * time.Minute)
		settled := f.changes
		f.runFor(30 * time.Minute)
		require.True(t, f.changes == settled, "seed %d: %d changes after it became stable: %+v", s, f.changes-settled, f)
		require.True(t, f.waiting <= 1+f.rate*DecisionInterval.Seconds(), "seed %d: %.0f messages wait: %+v", s, f.waiting, f)
	}
}

// A dependency of the workers handles 20 messages per second, and 40 arrive: more workers would only wait longer.
func TestScaleUpStopsWhenThroughputIsSaturated(t *testing.T) {
	f := &fluidQueue{policy: defaultSettings(), now: testTime, rate: 15, service: 1, limit: 20}
	f.policy.MaxReplicas = 1000
	f.runFor(5 * time.Minute)
	f.rate = 40
	f.runFor(30 * time.Minute)
	require.True(t, f.replicas <= 100, "%d workers, although 3 reach the maximum throughput", f.replicas)
	require.Equal(t, ReasonThroughputSaturated, f.last.Reason)
	// When the limit is lifted, the pool scales up again.
	f.limit = 1000
	f.runFor(15 * time.Minute)
	require.True(t, f.waiting <= 100, "%.0f messages are still waiting", f.waiting)
}

// Without steps, the pool has at most one worker more or fewer than running and waiting messages justified in the last 15 s,
// with the number of running ones and at a utilization of 80 %. A decision sees these messages a moment later.
func TestTheNumberOfWorkersFollowsPatternsOfLoad(t *testing.T) {
	for name, rates := range map[string][]float64{
		"bursts": {40, 0, 0, 0, 60, 0, 0, 0},
		"sine":   {4, 8, 15, 22, 26, 22, 15, 8, 4, 2},
		"steps":  {5, 5, 5, 20, 20, 20, 10, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fluidQueue{policy: defaultSettings(), now: testTime, service: 1}
			f.policy.MaxReplicas, f.policy.IdleAfter = 6, 5*time.Second
			f.policy.ScaleDown = ScaleRule{Window: 5 * time.Second, Step: new(intstr.FromString("100%"))}
			var samples []fluidQueue
			for _, f.rate = range slices.Concat(rates, make([]float64, 5)) {
				for range 3 {
					f.runFor(DecisionInterval)
					samples = append(samples, *f)
				}
			}
			for i := range samples {
				least, most := f.policy.MaxReplicas, int32(1)
				for _, near := range samples[max(0, i-int(15*time.Second/DecisionInterval)):min(len(samples), i+2)] {
					least = min(least, int32(math.Ceil(near.inFlight/10)))
					most = max(most, min(f.policy.MaxReplicas, int32(math.Ceil((near.inFlight+near.waiting)/8))))
				}
				got := samples[i].replicas
				require.True(t, got >= least-1 && got <= most+1, "after %s: %d workers, want %d to %d", samples[i].now.Sub(testTime), got, least, most)
			}
			require.True(t, f.replicas == 0, "%d workers without messages", f.replicas)
		})
	}
}
