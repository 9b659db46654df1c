package scaling

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// defaultSettings returns settings with the defaults: 0 to 20 workers, concurrency 10.
func defaultSettings() Settings {
	return Settings{MaxReplicas: 20, Concurrency: 10, WaitP95: 30 * time.Second, IdleAfter: time.Minute, ScaleDown: defaultScaleDown}
}

// memoryWithRate returns a memory with a service time of one second, an arrival rate, and recommendations of zero for an hour.
func memoryWithRate(rate float64) Memory {
	return Memory{
		Rates:           Rates{BusySeconds: 100, BusyFinished: 100, ArrivalRate: rate, TrendRate: rate},
		Recommendations: Recommendations{{Start: testTime.Add(-time.Hour)}},
	}
}

func justStarted(m Memory) Memory {
	m.ResumedAt = testTime
	return m
}

// observationOf returns an observation of a pool whose workers are all ready.
func observationOf(replicas int32, f *BacklogStats, m Memory, changes ...func(p *Settings)) Observation {
	in := Observation{Now: testTime, Settings: defaultSettings(), Replicas: replicas, Ready: replicas, PodStart: 10 * time.Second, Stats: f, Memory: m}
	for _, change := range changes {
		change(&in.Settings)
	}
	return in
}

// outcome is the part of a decision that most tests compare.
type outcome struct {
	Want, Applied int32
	Reason        Reason
}

func apiDuration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

func TestSettingsOfAutoscaling(t *testing.T) {
	for title, test := range map[string]struct {
		given v1alpha1.Autoscaling
		want  Settings
	}{
		"omitted fields have defaults": {given: v1alpha1.Autoscaling{MaxReplicas: 20}, want: defaultSettings()},
		"all fields are used": {
			given: v1alpha1.Autoscaling{
				MinReplicas: 2, MaxReplicas: 9, WaitP95: apiDuration(5 * time.Second),
				BacklogPerReplica: new(int32(7)), IdleAfter: apiDuration(0),
				ScaleUp:   &v1alpha1.ScaleRule{MaxStep: new(intstr.FromString("100%")), Period: apiDuration(15 * time.Second)},
				ScaleDown: &v1alpha1.ScaleRule{Window: apiDuration(time.Minute), MaxStep: new(intstr.FromInt32(2))},
				Fallback:  &v1alpha1.Fallback{Replicas: 4},
				Suspend:   true,
			},
			want: Settings{
				MinReplicas: 2, MaxReplicas: 9, Concurrency: 10, WaitP95: 5 * time.Second, BacklogPerReplica: 7,
				ScaleUp:   ScaleRule{Step: new(intstr.FromString("100%")), Period: 15 * time.Second},
				ScaleDown: ScaleRule{Window: time.Minute, Step: new(intstr.FromInt32(2)), Period: 10 * time.Second},
				Fallback:  &Fallback{Replicas: 4, After: time.Minute}, Suspended: true,
			},
		},
		"omitted fields of a rule have defaults": {
			given: v1alpha1.Autoscaling{MaxReplicas: 20, ScaleDown: &v1alpha1.ScaleRule{Window: apiDuration(time.Minute)}},
			want: func() Settings {
				p := defaultSettings()
				p.ScaleDown.Window = time.Minute
				return p
			}(),
		},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, test.want, NewSettings(&test.given, 10)) })
	}
}

func TestDecisionIsExplainedInTheStatus(t *testing.T) {
	in := observationOf(1, &BacklogStats{Backlog: 2000, Running: 10, OldestAge: 1500 * time.Millisecond}, memoryWithRate(2.5))
	want := &v1alpha1.ScaleDecision{
		Time: new(metav1.NewTime(testTime)), Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "Demand", Message: "12 recommended, scaling from 1 to 12: it follows the recommendation; " +
			"B = 2000 waiting messages, the oldest for 1.5s, F = 10 running; " +
			"λ = 2.5 arriving messages per second, s = 1s service time, ρ = 0.8 utilization, Pod start 10s; c = 10 handlers per worker; F: 10 handlers; " +
			"to keep up with arrivals, s·λ/ρ: 3.125 handlers; to clear the backlog in T = 18.5s, s·(λ + B/T): 110.608 handlers; largest / c: 12 workers"},
	}
	require.Equal(t, want, ExplainDecision(in, Decide(in)))
}

func TestMessageExplainsTheDecision(t *testing.T) {
	for title, test := range map[string]struct {
		in   Observation
		want string
	}{
		"unavailable metrics": {
			observationOf(3, nil, Memory{}), "3 recommended, staying at 3: queue metrics are unavailable, so the number of workers does not change",
		},
		"suspended autoscaling reports what it would do": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.Suspended = true }),
			"10 recommended, staying at 2: autoscaling is suspended; otherwise it would scale to 10",
		},
		"the target of a source": {
			observationOf(1, &BacklogStats{Backlog: 10, BacklogPerReplica: 2.5}, Memory{}),
			"4 recommended for 2.5 messages per worker (target of the source), scaling from 1 to 4: it follows the recommendation",
		},
		"the default of a source, limited": {
			observationOf(1, &BacklogStats{Backlog: 100}, Memory{}, func(p *Settings) { p.DefaultBacklogPerReplica, p.MaxReplicas = 10, 6 }),
			"10 recommended for 10 messages per worker (default without a service time), scaling from 1 to 6: maxReplicas is 6",
		},
		"an assumed service time": {
			observationOf(1, &BacklogStats{Backlog: 100}, Memory{}),
			"1 recommended for an assumed service time of 1s, staying at 1: it follows the recommendation",
		},
		"suspended autoscaling without a change": {
			observationOf(2, &BacklogStats{Running: 12}, memoryWithRate(10), func(p *Settings) { p.Suspended = true }),
			"2 recommended, staying at 2: autoscaling is suspended",
		},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, test.want, Summarize(test.in, Decide(test.in))) })
	}
}

// Each rule is tested separately, in the order in which Decide applies them.
func TestEachRuleOfADecision(t *testing.T) {
	saturated := memoryWithRate(5)
	saturated.Saturation = Saturation{SaturatedRate: 5}
	idleFor := func(d time.Duration) Memory {
		m := memoryWithRate(0)
		m.IdleSince = testTime.Add(-d)
		return m
	}
	missingFor := func(d time.Duration) Memory { return Memory{MissingSince: testTime.Add(-d)} }
	recommended := func(ago time.Duration, replicas int32) Memory {
		m := memoryWithRate(8)
		m.Recommendations = append(m.Recommendations,
			RecommendationSpan{Start: testTime.Add(-ago), Min: replicas, Max: replicas}, RecommendationSpan{Start: testTime.Add(2*time.Second - ago), Min: 1, Max: 1})
		return m
	}
	scaledDown := func(ago time.Duration, from, periodFrom int32) Memory {
		m := memoryWithRate(8)
		m.ScaleDown = ScaleRamp{StartReplicas: from, PeriodReplicas: periodFrom, PeriodStart: testTime.Add(-ago)}
		return m
	}
	burst, busy := &BacklogStats{Backlog: 2000}, &BacklogStats{Backlog: 100, Running: 80}
	withFallback := func(p *Settings) { p.Fallback = &Fallback{5, time.Minute} }
	atMost := func(replicas int32) func(*Settings) { return func(p *Settings) { p.MaxReplicas = replicas } }
	inThrees := func(p *Settings) { p.ScaleUp = ScaleRule{Step: new(intstr.FromInt32(3)), Period: time.Second} }
	slowlyDown := func(p *Settings) {
		p.ScaleDown = ScaleRule{Window: time.Hour, Step: new(intstr.FromString("10%")), Period: time.Hour}
	}
	for title, test := range map[string]struct {
		in   Observation
		want outcome
	}{
		"the first message scales from zero": {observationOf(0, &BacklogStats{Backlog: 1}, Memory{}), outcome{1, 1, ReasonDemand}},
		// 30 s less 10 s for the Pods to start: 2,000 in 20 s are 100 at once.
		"a burst scales from zero to what clears it within the objective": {observationOf(0, burst, memoryWithRate(0)), outcome{10, 10, ReasonDemand}},
		"an unknown service time counts as one second":                    {observationOf(0, burst, Memory{}), outcome{10, 10, ReasonDemand}},
		"an older backlog needs more workers":                             {observationOf(0, &BacklogStats{Backlog: 1000, OldestAge: 12 * time.Second}, memoryWithRate(0)), outcome{13, 13, ReasonDemand}},
		"a backlog that misses the objective is cleared in four seconds":  {observationOf(0, &BacklogStats{Backlog: 400, OldestAge: time.Hour}, memoryWithRate(0)), outcome{10, 10, ReasonDemand}},
		"steady load leaves room for fluctuations":                        {observationOf(1, &BacklogStats{Running: 10}, memoryWithRate(40)), outcome{5, 5, ReasonDemand}},
		// 40/s are 5 workers at 80 %; 40/s and 100 in 20 s are 45/s, which 5 can do.
		"the room for fluctuations also serves a backlog":                 {observationOf(5, &BacklogStats{Backlog: 100, Running: 50}, memoryWithRate(40)), outcome{5, 5, ReasonDemand}},
		"slower messages need more workers":                               {observationOf(1, &BacklogStats{Running: 10, ServiceTime: 4 * time.Second}, memoryWithRate(10)), outcome{5, 5, ReasonDemand}},
		"messages that workers return arrive again":                       {observationOf(1, &BacklogStats{Running: 10, ReturnRate: 30}, memoryWithRate(10)), outcome{5, 5, ReasonDemand}},
		"while uncounted retries are due, the pool grows from what runs":  {observationOf(4, &BacklogStats{Backlog: 1, RetriesDue: true, Running: 40}, memoryWithRate(0)), outcome{5, 5, ReasonDemand}},
		"an idle worker takes the retries that are due":                   {observationOf(1, &BacklogStats{Backlog: 1, RetriesDue: true}, memoryWithRate(0)), outcome{1, 1, ReasonDemand}},
		"backlogPerReplica may recommend more workers":                    {observationOf(1, &BacklogStats{Backlog: 40}, memoryWithRate(0), func(p *Settings) { p.BacklogPerReplica = 5 }), outcome{8, 8, ReasonDemand}},
		"only backlogPerReplica counts while the service time is unknown": {observationOf(1, burst, Memory{}, func(p *Settings) { p.BacklogPerReplica = 500 }), outcome{4, 4, ReasonDemand}},

		"the rate limit caps the number of workers": {observationOf(1, burst, memoryWithRate(0), func(p *Settings) { p.RatePerSecond = 16 }), outcome{10, 2, ReasonRateLimit}},
		"the rate limit leaves at least one worker": {observationOf(0, burst, memoryWithRate(0), func(p *Settings) { p.RatePerSecond = 0.01 }), outcome{10, 1, ReasonRateLimit}},
		"maxInFlight caps the number of workers":    {observationOf(1, burst, memoryWithRate(0), func(p *Settings) { p.MaxInFlight = 25 }), outcome{10, 3, ReasonMaxInFlight}},

		"the last worker stays until the pool was idle for idleAfter":               {observationOf(1, &BacklogStats{}, idleFor(59*time.Second)), outcome{0, 1, ReasonIdleAfter}},
		"an idle pool scales to zero":                                               {observationOf(1, &BacklogStats{}, idleFor(time.Minute)), outcome{0, 0, ReasonIdle}},
		"an idle pool removes all its workers at once":                              {observationOf(20, &BacklogStats{}, idleFor(time.Minute), slowlyDown), outcome{0, 0, ReasonIdle}},
		"the last worker stays while it is busy":                                    {observationOf(1, &BacklogStats{Running: 1}, idleFor(time.Hour)), outcome{1, 1, ReasonDemand}},
		"the last worker stays while messages are delivered that no worker reports": {observationOf(1, &BacklogStats{Unaccounted: 55}, idleFor(time.Hour)), outcome{0, 1, ReasonDemand}},
		"earlier arrivals do not scale a pool from zero":                            {observationOf(0, &BacklogStats{}, memoryWithRate(100)), outcome{13, 0, ReasonIdle}},

		"minReplicas is a lower bound":  {observationOf(0, &BacklogStats{}, Memory{}, func(p *Settings) { p.MinReplicas = 3 }), outcome{0, 3, ReasonMinReplicas}},
		"maxReplicas is an upper bound": {observationOf(1, &BacklogStats{Backlog: 1e9}, memoryWithRate(0)), outcome{maxReplicas, 20, ReasonMaxReplicas}},
		"the budget takes precedence over minReplicas": {
			observationOf(0, burst, memoryWithRate(0), func(p *Settings) { p.Budget, p.MinReplicas = new(int32(4)), 6 }), outcome{10, 4, ReasonBudget},
		},
		"a lowered bound applies to busy workers":               {observationOf(8, busy, memoryWithRate(90), atMost(4)), outcome{12, 4, ReasonMaxReplicas}},
		"a lowered bound applies after a start of the operator": {observationOf(8, busy, justStarted(memoryWithRate(90)), atMost(4)), outcome{12, 4, ReasonMaxReplicas}},
		"a lowered bound is reached in steps":                   {observationOf(20, &BacklogStats{}, memoryWithRate(0), atMost(5)), outcome{0, 8, ReasonMaxStep}},

		"saturated throughput prevents scaling up":           {observationOf(10, &BacklogStats{Backlog: 5000, Running: 100, Finished: new(int64(9))}, saturated), outcome{26, 10, ReasonThroughputSaturated}},
		"saturated throughput does not prevent scaling down": {observationOf(10, &BacklogStats{Running: 5}, saturated), outcome{1, 4, ReasonMaxStep}},

		"a small scale-up is within tolerance":                               {observationOf(10, &BacklogStats{Running: 80}, memoryWithRate(88)), outcome{11, 10, ReasonWithinTolerance}},
		"a small scale-down is within tolerance":                             {observationOf(10, &BacklogStats{Running: 68}, memoryWithRate(68)), outcome{9, 10, ReasonWithinTolerance}},
		"a worker stays that 5 % more arrivals would need":                   {observationOf(3, &BacklogStats{Running: 15}, memoryWithRate(15.9)), outcome{3, 3, ReasonDemand}},
		"a worker stops that 5 % more arrivals would not need":               {observationOf(3, &BacklogStats{Running: 15}, memoryWithRate(15.2)), outcome{2, 2, ReasonDemand}},
		"a small scale-up to maxReplicas is not ignored as within tolerance": {observationOf(19, &BacklogStats{Backlog: 5000}, memoryWithRate(0)), outcome{25, 20, ReasonMaxReplicas}},
		"scaling up follows the lowest recommendation of the window": {
			observationOf(2, burst, recommended(5*time.Second, 4), func(p *Settings) { p.ScaleUp.Window = 4 * time.Second }),
			outcome{11, 2, ReasonStabilizationWindow},
		},
		"scaling up is limited by its step":                                  {observationOf(2, burst, memoryWithRate(0), inThrees), outcome{10, 5, ReasonMaxStep}},
		"scaling from zero skips the window":                                 {observationOf(0, burst, memoryWithRate(0), func(p *Settings) { p.ScaleUp.Window = time.Minute }), outcome{10, 10, ReasonDemand}},
		"scaling down follows the highest recommendation of the window":      {observationOf(10, &BacklogStats{Running: 8}, recommended(10*time.Second, 8)), outcome{1, 8, ReasonStabilizationWindow}},
		"a window that keeps nearly all workers keeps them all":              {observationOf(10, &BacklogStats{Running: 8}, recommended(10*time.Second, 9)), outcome{1, 10, ReasonStabilizationWindow}},
		"recommendations before the window do not count":                     {observationOf(10, &BacklogStats{Running: 8}, recommended(time.Minute, 8)), outcome{1, 4, ReasonMaxStep}},
		"an incomplete window prevents scaling down":                         {observationOf(10, &BacklogStats{Running: 8}, Memory{}), outcome{1, 10, ReasonStabilizationWindow}},
		"scaling down is limited by its step":                                {observationOf(10, &BacklogStats{Running: 8}, memoryWithRate(8)), outcome{1, 4, ReasonMaxStep}},
		"the changes of a period are one step together":                      {observationOf(8, &BacklogStats{Running: 8}, scaledDown(29*time.Second, 20, 20)), outcome{1, 8, ReasonMaxStep}},
		"what a small change left of the step is allowed in the same period": {observationOf(4, &BacklogStats{Running: 8}, scaledDown(5*time.Second, 5, 5)), outcome{1, 2, ReasonMaxStep}},
		"after a large change, the period has no other one":                  {observationOf(6, &BacklogStats{Running: 8}, scaledDown(20*time.Second, 10, 10)), outcome{1, 6, ReasonMaxStep}},
		"after a small change, a period has no other small one": {
			observationOf(18, &BacklogStats{Running: 8}, scaledDown(20*time.Second, 20, 20), func(p *Settings) { p.MinReplicas = 14 }),
			outcome{1, 18, ReasonMaxStep},
		},
		"a percentage refers to the start of the scale-down": {observationOf(10, &BacklogStats{Running: 8}, scaledDown(30*time.Second, 12, 12)), outcome{1, 2, ReasonMaxStep}},
		"busy workers are kept":                              {observationOf(10, &BacklogStats{Running: 61}, memoryWithRate(8)), outcome{7, 7, ReasonDemand}},

		"without stats the number does not change":          {observationOf(7, nil, Memory{}), outcome{7, 7, ReasonStatsUnavailable}},
		"without stats a pool stays at zero":                {observationOf(0, nil, missingFor(time.Hour)), outcome{0, 0, ReasonStatsUnavailable}},
		"the fallback applies after its time without stats": {observationOf(2, nil, missingFor(time.Minute), withFallback), outcome{2, 5, ReasonFallback}},
		"the fallback does not scale down":                  {observationOf(8, nil, missingFor(time.Hour), withFallback), outcome{8, 8, ReasonStatsUnavailable}},
		"the fallback does not apply earlier":               {observationOf(2, nil, missingFor(59*time.Second), withFallback), outcome{2, 2, ReasonStatsUnavailable}},
		"the fallback respects the bounds":                  {observationOf(2, nil, missingFor(time.Hour), withFallback, atMost(3)), outcome{2, 3, ReasonFallback}},

		"suspended autoscaling changes nothing": {observationOf(2, burst, memoryWithRate(0), func(p *Settings) { p.Suspended = true }), outcome{10, 2, ReasonSuspended}},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(test.in)
			require.Equal(t, test.want, outcome{d.Recommended, d.Applied, d.Reason})
		})
	}
}

func TestWhileWorkersStartThePoolScalesUpOnlyToTwiceAsMany(t *testing.T) {
	for backlog, want := range map[int64]int32{1200: 4, 1700: 9} { // 50 % more, and twice as many
		in := observationOf(4, &BacklogStats{Backlog: backlog}, memoryWithRate(0))
		in.Ready = 1
		require.Equal(t, want, Decide(in).Applied)
	}
}

func TestTheRecommendationFollowsTheFirstTargetThatIsKnown(t *testing.T) {
	ofSource := func(p *Settings) { p.DefaultBacklogPerReplica = 10 }
	explicit := func(p *Settings) { p.DefaultBacklogPerReplica, p.BacklogPerReplica = 10, 50 }
	for title, test := range map[string]struct {
		stats  BacklogStats
		change func(*Settings)
		want   int32
		target Target
	}{
		"backlogPerReplica":                      {BacklogStats{Backlog: 100, BacklogPerReplica: 5}, explicit, 2, Target{50, TargetBacklogPerReplica}},
		"the target that the source names":       {BacklogStats{Backlog: 100, BacklogPerReplica: 5}, ofSource, 20, Target{5, TargetFromSource}},
		"a fraction of a message per worker":     {BacklogStats{Backlog: 3, BacklogPerReplica: 0.5}, ofSource, 6, Target{0.5, TargetFromSource}},
		"running messages count too":             {BacklogStats{Backlog: 6, Running: 4, BacklogPerReplica: 5}, ofSource, 2, Target{5, TargetFromSource}},
		"the service time, if workers report it": {BacklogStats{Backlog: 100, ServiceTime: 50 * time.Millisecond}, ofSource, 1, Target{0, TargetServiceTime}},
		"the service time, if it needs more workers than the target of the source": {
			BacklogStats{Backlog: 100, ServiceTime: time.Minute, BacklogPerReplica: 100}, ofSource, 30, Target{0, TargetServiceTime},
		},
		"the target of the source, if it needs more workers than the service time": {
			BacklogStats{Backlog: 100, ServiceTime: time.Second, BacklogPerReplica: 20}, ofSource, 5, Target{20, TargetFromSource},
		},
		"the default of a source":                   {BacklogStats{Backlog: 100}, ofSource, 10, Target{10, TargetDefault}},
		"an assumed service time, only for a Queue": {BacklogStats{Backlog: 100}, func(*Settings) {}, 1, Target{0, TargetAssumedServiceTime}},
		"a target that is not a number is ignored":  {BacklogStats{Backlog: 100, BacklogPerReplica: math.NaN()}, ofSource, 10, Target{10, TargetDefault}},
		"a tiny target":                             {BacklogStats{Backlog: 1, BacklogPerReplica: 1e-300}, ofSource, 1000, Target{minBacklogPerReplica, TargetFromSource}},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(observationOf(1, &test.stats, Memory{}, test.change))
			require.True(t, d.Recommended == test.want && d.Target == test.target, "%d recommended for %+v", d.Recommended, d.Target)
		})
	}
}

func ago(d time.Duration) time.Time { return testTime.Add(-d) }

// saturable is an observation of four ready and busy workers with two handlers each, and a memory in which two workers had a throughput of
// ten messages per second. Four should have at least 12.5. A message takes one second.
type saturable struct {
	Observation
	Saturation
	rates Rates
}

func newSaturable() *saturable {
	in := Observation{
		Now: testTime, Settings: Settings{Concurrency: 2}, Replicas: 4, Ready: 4,
		Stats: &BacklogStats{Backlog: 9, Running: 8, Finished: new(int64(100))},
	}
	return &saturable{in, Saturation{BaselineReady: 2, BaselineRate: 10, Ready: 4, ReadySince: ago(time.Minute)}, Rates{FinishRate: 12.4}}
}

func TestThroughputIsComparedWithTheBaseline(t *testing.T) {
	type change = func(c *saturable)
	rate := func(perSecond float64) change { return func(c *saturable) { c.rates.FinishRate = perSecond } }
	running := func(messages int64) change { return func(c *saturable) { c.Stats.Running = messages } }
	saturatedAt := func(perSecond float64) change { return func(c *saturable) { c.SaturatedRate = perSecond } }
	baseline := func(ready int32, perSecond float64) change {
		return func(c *saturable) { c.BaselineReady, c.BaselineRate = ready, perSecond }
	}
	readySince := func(ready int32, since time.Time) change {
		return func(c *saturable) { c.Saturation.Ready, c.ReadySince = ready, since }
	}
	all := func(changes ...change) change {
		return func(c *saturable) {
			for _, one := range changes {
				one(c)
			}
		}
	}
	withoutBaseline, forgotten := baseline(0, 0), all(baseline(0, 0), saturatedAt(0))
	for title, row := range map[string]struct {
		change change
		grows  bool
		want   change // of the memory before
	}{
		"it did not grow":  {all(), false, saturatedAt(12.4)},
		"it grew enough":   {rate(12.5), false, baseline(4, 12.5)},
		"nothing finishes": {rate(0), false, saturatedAt(minSaturatedRate)},
		"the workers are ready for less than 13 seconds": {readySince(4, ago(13*time.Second-1)), false, all()},
		"the workers are ready for 13 seconds":           {readySince(4, ago(13*time.Second)), false, saturatedAt(12.4)},
		"the workers had no time for three messages": {
			all(readySince(4, ago(15*time.Second)), func(c *saturable) { c.rates.ReportedServiceSeconds = 2 }), false, all(),
		},
		"it grew, but may not be settled":                  {all(readySince(4, ago(time.Second)), rate(20)), false, all()},
		"a worker is not busy":                             {running(6), false, all()},
		"a handler is not busy":                            {running(7), false, saturatedAt(12.4)},
		"a worker is not ready":                            {func(c *saturable) { c.Replicas = 5 }, false, all()},
		"fewer than twice the workers":                     {baseline(3, 10), false, all()},
		"saturated, and hardly more":                       {all(saturatedAt(10), rate(12.5)), false, all()},
		"saturated, and a quarter more":                    {all(saturatedAt(10), rate(12.6)), false, forgotten},
		"no backlog":                                       {all(saturatedAt(10), running(0), func(c *saturable) { c.Stats.Backlog = 0 }), false, forgotten},
		"unknown":                                          {all(saturatedAt(10), func(c *saturable) { c.Stats.Finished = nil }), true, forgotten},
		"no baseline, and the pool does not grow":          {all(withoutBaseline, running(6)), false, all()},
		"no baseline, and the pool grows":                  {all(withoutBaseline, running(6)), true, baseline(4, 12.4)},
		"no baseline, and all workers are busy":            {withoutBaseline, false, baseline(4, 12.4)},
		"no worker is ready any more":                      {all(withoutBaseline, func(c *saturable) { c.Observation.Ready = 0 }), true, readySince(0, testTime)},
		"no worker is ready yet":                           {func(c *saturable) { c.Saturation.Ready, c.Observation.Ready = 0, 0 }, false, all()},
		"workers are ready as an operator starts":          {readySince(0, time.Time{}), false, readySince(4, testTime)},
		"as many workers as before, since an unknown time": {readySince(4, time.Time{}), false, readySince(4, testTime)},
		"another number of workers is ready":               {readySince(3, ago(time.Minute)), false, readySince(4, testTime)},
		"a clock that was set back":                        {readySince(4, testTime.Add(time.Hour)), false, readySince(4, testTime)},
		"the first workers are ready": {
			func(c *saturable) { c.Saturation.Ready, c.Replicas = 0, 5 }, false, all(readySince(4, testTime), func(c *saturable) { c.ActiveSince = testTime }),
		},
	} {
		t.Run(title, func(t *testing.T) {
			got, want := newSaturable(), newSaturable()
			row.change(got)
			all(row.change, row.want)(want)
			got.updateSaturation(got.Observation, &got.rates, row.grows)
			require.Equal(t, want.Saturation, got.Saturation)
		})
	}
}

func TestAScaleUpWaitsForTheThroughputOfTheLastOne(t *testing.T) {
	warmingUp := func(since time.Duration, finishRate float64) func(*saturable, *replicaTarget) {
		return func(c *saturable, _ *replicaTarget) {
			c.Saturation, c.rates.FinishRate = Saturation{ActiveSince: ago(since)}, finishRate
		}
	}
	for title, row := range map[string]struct {
		change func(*saturable, *replicaTarget)
		want   Reason // of a pool that keeps its workers; empty if it scales up
	}{
		"throughput did not grow":             {func(*saturable, *replicaTarget) {}, ReasonThroughputUnproven},
		"it grew":                             {func(c *saturable, _ *replicaTarget) { c.rates.FinishRate = 12.5 }, ""},
		"it is saturated":                     {func(c *saturable, _ *replicaTarget) { c.SaturatedRate, c.rates.FinishRate = 10, 20 }, ReasonThroughputSaturated},
		"it is unknown":                       {func(c *saturable, _ *replicaTarget) { c.Stats.Finished = nil }, ""},
		"no worker is ready":                  {func(c *saturable, _ *replicaTarget) { c.Observation.Ready, c.SaturatedRate = 0, 10 }, ""},
		"fewer workers than minimum":          {func(_ *saturable, n *replicaTarget) { n.lower = 5 }, ""},
		"as many as the minimum":              {func(_ *saturable, n *replicaTarget) { n.lower = 4 }, ReasonThroughputUnproven},
		"the first workers have just started": {warmingUp(12*time.Second, 1.9), ReasonThroughputUnproven}, // of eight that they could finish
		"the first workers finish messages":   {warmingUp(12*time.Second, 2), ""},
		"the first workers had time":          {warmingUp(13*time.Second, 0), ""},
	} {
		for _, wanted := range []int32{3, 4, 6} {
			c, n := newSaturable(), replicaTarget{value: wanted, reason: ReasonDemand, upper: 9}
			row.change(c, &n)
			value, reason := wanted, ReasonDemand
			if row.want != "" && wanted > c.Replicas {
				value, reason = c.Replicas, row.want
			}
			n.applySaturation(c.Observation, c.Saturation, &c.rates)
			require.True(t, n.value == value && n.reason == reason, "%s, %d wanted: %d, %s; want %d, %s", title, wanted, n.value, n.reason, value, reason)
		}
	}
}

func TestTheChangesOfAPeriodAreOneStep(t *testing.T) {
	four, half := new(intstr.FromInt32(4)), new(intstr.FromString("50%"))
	for title, row := range map[string]struct {
		step   *intstr.IntOrString
		before ScaleRamp
		wanted int32
		want   int32
		after  ScaleRamp
	}{
		"no step":                     {nil, ScaleRamp{}, 9, maxReplicas, ScaleRamp{}},
		"the first change":            {four, ScaleRamp{}, 9, 4, ScaleRamp{20, 20, testTime}},
		"a part of the workers":       {half, ScaleRamp{}, 19, 10, ScaleRamp{20, 20, testTime}},
		"decided again":               {half, ScaleRamp{10, 20, testTime}, 9, 5, ScaleRamp{10, 20, testTime}},
		"a rest of the step":          {four, ScaleRamp{19, 19, ago(30 * time.Second)}, 3, 3, ScaleRamp{19, 19, ago(30 * time.Second)}},
		"less than the rest":          {four, ScaleRamp{19, 19, ago(30 * time.Second)}, 2, 0, ScaleRamp{19, 19, ago(30 * time.Second)}},
		"after a large change":        {four, ScaleRamp{18, 18, ago(30 * time.Second)}, 9, 0, ScaleRamp{18, 18, ago(30 * time.Second)}},
		"in the next period":          {half, ScaleRamp{10, 15, ago(time.Minute)}, 9, 5, ScaleRamp{10, 20, testTime}},
		"at the end of two periods":   {half, ScaleRamp{10, 15, ago(2 * time.Minute)}, 9, 5, ScaleRamp{10, 20, testTime}},
		"after two periods":           {half, ScaleRamp{10, 15, ago(2*time.Minute + 1)}, 19, 10, ScaleRamp{20, 20, testTime}},
		"a clock that was set back":   {half, ScaleRamp{10, 15, testTime.Add(time.Hour)}, 19, 10, ScaleRamp{20, 20, testTime}},
		"a step that is not a number": {new(intstr.FromString("x")), ScaleRamp{}, 9, maxReplicas, ScaleRamp{20, 20, testTime}},
	} {
		got := row.before
		allowed := got.allowedChange(Observation{Now: testTime, Replicas: 20}, ScaleRule{Step: row.step, Period: time.Minute}, row.wanted)
		require.True(t, allowed == row.want && got == row.after, "%s: %d and %+v, want %d and %+v", title, allowed, got, row.want, row.after)
	}
}

func TestRatesAreMeasuredFromEachCounterThatIsKnown(t *testing.T) {
	const elapsed = 10
	kept, busyKept := math.Exp(-elapsed/rateTimeConstant.Seconds()), math.Exp(-elapsed/serviceTimeConstant.Seconds())
	trendKept := math.Exp(-elapsed / trendTimeConstant.Seconds())
	burst := maxBurstFactor * 2 / ((60*busyKept + 40) / (30 * busyKept)) // two handlers, by the service time
	for title, row := range map[string]struct {
		running           int64
		finished, arrived *int64
		want              Rates
	}{
		"messages run and finish":  {4, new(int64(110)), nil, Rates{FinishRate: 1 - kept, ArrivalRate: 1 - kept, TrendRate: 1 - trendKept, LatestRate: 1, BusySeconds: 60*busyKept + 40, BusyFinished: 30*busyKept + 10}},
		"messages only run":        {4, new(int64(100)), nil, Rates{BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"messages only finish":     {0, new(int64(110)), nil, Rates{FinishRate: 1 - kept, ArrivalRate: .6 * (1 - kept), TrendRate: .6 * (1 - trendKept), LatestRate: .6, BusySeconds: 60 * busyKept, BusyFinished: 30*busyKept + 10}},
		"nothing runs":             {0, new(int64(100)), nil, Rates{BusySeconds: 60, BusyFinished: 30}},
		"arrivals are counted":     {4, new(int64(100)), new(int64(1020)), Rates{ArrivalRate: 2 * (1 - kept), TrendRate: 2 * (1 - trendKept), LatestRate: 2, BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"a burst":                  {4, new(int64(100)), new(int64(9000)), Rates{ArrivalRate: burst * (1 - kept), TrendRate: burst * (1 - trendKept), LatestRate: burst, BusySeconds: 60*busyKept + 40, BusyFinished: 30 * busyKept}},
		"a counter that was reset": {4, new(int64(99)), new(int64(999)), Rates{BusySeconds: 60, BusyFinished: 30}},
		"an unknown counter":       {4, nil, nil, Rates{BusySeconds: 60, BusyFinished: 30}},
	} {
		got := Rates{MeasuredAt: ago(elapsed * time.Second), Arrived: new(int64(1000)), Finished: new(int64(100)), Outstanding: 10, BusySeconds: 60, BusyFinished: 30}
		got.updateRates(Observation{Now: testTime, Settings: Settings{Concurrency: 2}, Stats: &BacklogStats{Backlog: 6, Running: row.running, Finished: row.finished, Arrived: row.arrived}})
		require.True(t, got.MeasuredAt.Equal(testTime) && got.Outstanding == 6+row.running, "%s: %+v is not measured now", title, got)
		got.MeasuredAt, got.Outstanding, got.Arrived, got.Finished = time.Time{}, 0, nil, nil
		for name, values := range map[string][2]float64{
			"FinishRate": {got.FinishRate, row.want.FinishRate}, "ArrivalRate": {got.ArrivalRate, row.want.ArrivalRate}, "TrendRate": {got.TrendRate, row.want.TrendRate},
			"LatestRate": {got.LatestRate, row.want.LatestRate}, "BusySeconds": {got.BusySeconds, row.want.BusySeconds}, "BusyFinished": {got.BusyFinished, row.want.BusyFinished},
		} {
			require.True(t, math.Abs(values[0]-values[1]) <= 1e-9, "%s: %s is %f, want %f", title, name, values[0], values[1])
		}
	}
	for finished, want := range map[float64]time.Duration{4.9: 0, 5: 2 * time.Second} {
		got := (&Rates{BusySeconds: 2 * finished, BusyFinished: finished}).serviceTime()
		require.True(t, got == want, "after %g messages, the service time is %s, want %s", finished, got, want)
	}
}

func TestRecommendationsOfAWindowAreKeptInSpans(t *testing.T) {
	in := Observation{Settings: Settings{ScaleUp: ScaleRule{Window: 20 * time.Second}, ScaleDown: ScaleRule{Window: 80 * time.Second}}}
	var got Recommendations
	for second := range 200 {
		in.Now = testTime.Add(time.Duration(second) * time.Second)
		got.addRecommendation(in, int32(second))
	}
	var want Recommendations
	for second := 110; second < 200; second += 10 { // the first overlaps the window
		want = append(want, RecommendationSpan{testTime.Add(time.Duration(second) * time.Second), int32(second), int32(second + 9)})
	}
	require.Equal(t, want, got)
}

func TestValuesThatCannotBeDecideLikeTheirBounds(t *testing.T) {
	stats := func(change func(*BacklogStats)) *BacklogStats {
		s := &BacklogStats{Backlog: 50, Running: 5, Finished: new(int64(100))}
		change(s)
		return s
	}
	for title, rows := range map[string][2]Observation{
		"the age of messages":  {observationOf(1, stats(func(s *BacklogStats) { s.OldestAge = -time.Hour }), Memory{}), observationOf(1, stats(func(*BacklogStats) {}), Memory{})},
		"the service time":     {observationOf(1, stats(func(s *BacklogStats) { s.ServiceTime = -time.Hour }), Memory{}), observationOf(1, stats(func(*BacklogStats) {}), Memory{})},
		"too few workers":      {observationOf(-5, stats(func(*BacklogStats) {}), Memory{}), observationOf(0, stats(func(*BacklogStats) {}), Memory{})},
		"more than one counts": {observationOf(maxReplicas+5, nil, Memory{}), observationOf(maxReplicas, nil, Memory{})},
	} {
		assert.Equal(t, title, Decide(rows[1]), Decide(rows[0]))
	}
}

func TestAChangeEndsTheRampOfTheOtherDirection(t *testing.T) {
	ramp := ScaleRamp{1, 1, ago(time.Second)}
	for title, row := range map[string]struct {
		replicas         int32
		running          int64
		keepsUp, keepsDn bool
	}{
		"more workers": {2, 90, true, false}, "fewer workers": {9, 1, false, true}, "as many workers": {1, 8, true, true},
	} {
		memory := memoryWithRate(0)
		memory.ScaleUp, memory.ScaleDown = ramp, ramp
		got := Decide(observationOf(row.replicas, &BacklogStats{Running: row.running}, memory)).Memory
		isRight := (got.ScaleUp != ScaleRamp{}) == row.keepsUp && (got.ScaleDown != ScaleRamp{}) == row.keepsDn
		require.True(t, isRight, "%s: the ramps are %+v and %+v", title, got.ScaleUp, got.ScaleDown)
	}
}

func TestARateLimitLeavesMessagesForFewWorkers(t *testing.T) {
	for rate, want := range map[float64]int32{0: 20, 0.1: 1, 10: 3, 40: 10, 200: 20} { // of ten handlers, each with two seconds for a message
		n := replicaTarget{value: 20, upper: 20}
		n.applyLimits(observationOf(5, &BacklogStats{Backlog: 999}, Memory{}, func(p *Settings) { p.RatePerSecond = rate }), &Memory{Rates: Rates{ReportedServiceSeconds: 2}})
		require.True(t, n.value == want, "at most %g messages per second: %d workers, want %d", rate, n.value, want)
	}
}

func TestStatsAreMissingSinceTheFirstDecisionWithoutThem(t *testing.T) {
	for since, want := range map[time.Time]time.Time{{}: testTime, ago(time.Hour): ago(time.Hour), testTime.Add(time.Hour): testTime} {
		got := Decide(observationOf(3, nil, Memory{MissingSince: since})).Memory.MissingSince
		require.True(t, got.Equal(want), "known since %s: %s, want %s", since, got, want)
	}
}

// memoryMeasured returns a memory of counters that were read some time ago.
func memoryMeasured(ago time.Duration, r Rates) Memory {
	r.MeasuredAt = testTime.Add(-ago)
	return Memory{Rates: r}
}

func TestRatesAreMeasuredFromCounters(t *testing.T) {
	hundred := new(int64(100))
	beforeAGap := func(r Rates) Memory {
		r.Finished, r.ArrivalRate = hundred, 10
		return memoryMeasured(10*time.Minute, r)
	}
	for title, test := range map[string]struct {
		stats  BacklogStats
		memory Memory
		want   [3]float64 // arriving and finishing messages per second, and the service time
	}{
		"the first measurement gives no rates":         {BacklogStats{Backlog: 10, Arrived: new(int64(500)), Finished: new(int64(490))}, Memory{}, [3]float64{}},
		"after a long gap only the new rate counts":    {BacklogStats{Arrived: new(int64(7300)), Finished: hundred}, beforeAGap(Rates{Arrived: hundred}), [3]float64{12, 0, 0}},
		"a new counter gives no rate":                  {BacklogStats{Arrived: hundred, Finished: hundred}, memoryMeasured(2*time.Second, Rates{}), [3]float64{}},
		"arrivals that are not counted are derived":    {BacklogStats{Backlog: 30, Finished: new(int64(120))}, beforeAGap(Rates{Outstanding: 30}), [3]float64{20.0 / 600, 20.0 / 600, 0}},
		"the service time that workers report is used": {BacklogStats{ServiceTime: 3 * time.Second}, memoryWithRate(0), [3]float64{0, 0, 3}},
	} {
		rates := Decide(observationOf(1, &test.stats, test.memory)).Memory.Rates
		for i, got := range [3]float64{rates.ArrivalRate, rates.FinishRate, rates.serviceTime().Seconds()} {
			require.True(t, math.Abs(got-test.want[i]) <= 0.01, "%s: value %d is %.3f, want %v", title, i, got, test.want)
		}
	}
}

func TestCountersAreMeasuredAgainAfterStatsWereUnavailable(t *testing.T) {
	memory := memoryMeasured(2*time.Second, Rates{Arrived: new(int64(100)), ArrivalRate: 10})
	memory.IdleSince = testTime.Add(-time.Hour)
	lost := Decide(observationOf(1, nil, memory))
	isMissing := lost.Memory.MissingSince.Equal(testTime) && lost.Memory.IdleSince.IsZero()
	require.True(t, isMissing, "missing since %s, idle since %s", lost.Memory.MissingSince, lost.Memory.IdleSince)
	back := observationOf(1, &BacklogStats{Arrived: new(int64(90000))}, lost.Memory)
	back.Now = testTime.Add(time.Second)
	found := Decide(back)
	require.Equal(t, 10, found.Memory.Rates.ArrivalRate)
	require.True(t, found.Memory.MissingSince.IsZero(), "missing since %s", found.Memory.MissingSince)
}

func TestArrivalRateIsForecast(t *testing.T) {
	for title, test := range map[string]struct {
		rates Rates
		want  float64
	}{
		"a constant rate":              {Rates{ArrivalRate: 40, TrendRate: 40}, 40},
		"a growing rate":               {Rates{ArrivalRate: 40, TrendRate: 37}, 42},
		"a sudden increase is limited": {Rates{ArrivalRate: 40, TrendRate: 0}, 50},
		"a decrease is not forecast":   {Rates{ArrivalRate: 40, TrendRate: 80}, 40},
	} {
		got := test.rates.forecastRate(10 * time.Second)
		require.True(t, math.Abs(got-test.want) <= 1e-9, "%s: %.2f in ten seconds, want %.2f", title, got, test.want)
	}
}

func TestAfterARestartThePoolScalesUpAtOnceAndDownOnceRatesHaveSettled(t *testing.T) {
	// 60 messages per second of one second keep 6 of 8 workers busy, which the target utilization calls for.
	restarted := func() (f *fluidQueue, replicas int32) {
		f = &fluidQueue{policy: defaultSettings(), now: testTime, rate: 60, service: 1}
		f.runFor(5 * time.Minute)
		f.memory, f.changes = RestoreMemory(&v1alpha1.WorkerPoolStatus{}), 0
		return f, f.replicas
	}
	f, _ := restarted()
	f.runFor(5 * time.Minute)
	require.True(t, f.changes == 0, "%d changes under the same load: %s", f.changes, Summarize(Observation{Settings: f.policy}, f.last))

	f, before := restarted()
	f.waiting = 5000
	f.runFor(DecisionInterval)
	require.True(t, f.replicas > before, "%d workers at once under more load, before %d", f.replicas, before)

	f, before = restarted()
	f.rate = 10
	f.runFor(settledRates)
	require.True(t, f.replicas == before, "%d workers under less load, before %d, although rates have not settled", f.replicas, before)
	f.runFor(DecisionInterval)
	require.True(t, f.replicas < before, "%d workers when rates have settled, before %d", f.replicas, before)
}

func TestSinceWhenAPoolIsIdleOrHasNoMetricsIsRestored(t *testing.T) {
	since := metav1.NewTime(testTime)
	want := Memory{IdleSince: testTime, MissingSince: testTime}
	status := v1alpha1.WorkerPoolStatus{IdleSince: &since}
	status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, LastTransitionTime: since},
	}
	require.Equal(t, want, RestoreMemory(&status))
}
