package scaling

import (
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/test/require"
)

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
