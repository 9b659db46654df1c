package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheRecommendationFollowsTheFirstTargetThatIsKnown(t *testing.T) {
	ofSource := func(p *Settings) { p.DefaultBacklogPerReplica = 10 }
	explicit := func(p *Settings) { p.DefaultBacklogPerReplica, p.BacklogPerReplica = 10, 50 }
	for title, test := range map[string]struct {
		stats  BacklogStats
		change func(*Settings)
		want   int32
		target Target
	}{
		"backlogPerReplica":                  {BacklogStats{Backlog: 100, BacklogPerReplica: 5}, explicit, 2, Target{50, TargetBacklogPerReplica}},
		"the target that the source names":   {BacklogStats{Backlog: 100, BacklogPerReplica: 5}, ofSource, 20, Target{5, TargetFromSource}},
		"a fraction of a message per worker": {BacklogStats{Backlog: 3, BacklogPerReplica: 0.5}, ofSource, 6, Target{0.5, TargetFromSource}},
		"running messages count too":         {BacklogStats{Backlog: 6, Running: 4, BacklogPerReplica: 5}, ofSource, 2, Target{5, TargetFromSource}},
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
		"a tiny target": {BacklogStats{Backlog: 1, BacklogPerReplica: 1e-300}, ofSource, 1000, Target{minBacklogPerReplica, TargetFromSource}},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(observationOf(1, &test.stats, Memory{}, test.change))
			require.True(t, d.Recommended == test.want && d.Target == test.target, "%d recommended for %+v", d.Recommended, d.Target)
		})
	}
}
