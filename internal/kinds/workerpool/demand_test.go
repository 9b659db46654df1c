package workerpool

import (
	"testing"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAPoolWithASourceAssumesNoServiceTime(t *testing.T) {
	for title, test := range map[string]struct {
		change func(*testPool)
		want   int32
		source scaling.TargetSource
	}{
		"the default is the concurrency":              {func(*testPool) {}, 10, scaling.TargetDefault},
		"the default is at least 5":                   {func(s *testPool) { s.Pool.Spec.Concurrency = 1 }, 20, scaling.TargetDefault},
		"backlogPerReplica":                           {func(s *testPool) { s.Pool.Spec.Autoscaling.BacklogPerReplica = new(int32(50)) }, 2, scaling.TargetBacklogPerReplica},
		"the target of the source":                    {func(s *testPool) { s.Stats.BacklogPerReplica = 25 }, 4, scaling.TargetFromSource},
		"the service time that a worker reports":      {func(s *testPool) { s.Workers[0].Stats.Recent = &RecentAttempts{Count: 10, Seconds: 1} }, 1, scaling.TargetServiceTime},
		"a pool with Queues assumes a service time":   {func(s *testPool) { s.Pool.Spec.Source = nil }, 3, scaling.TargetAssumedServiceTime},
		"workers that do not answer change no target": {func(s *testPool) { s.Workers[0].Stats = nil }, 10, scaling.TargetDefault},
	} {
		t.Run(title, func(t *testing.T) {
			s := withSource(autoscaledPool(1))
			s.Pool.Spec.Autoscaling.MaxReplicas = 100
			s.Stats.InFlightKnown, s.Stats.Backlog = false, 100
			test.change(s)
			d := decideDemand(newFleet(s.Observation)).decision
			isRight := d.Recommended == test.want && d.Target.Source == test.source
			require.True(t, isRight, "%d recommended by %s: %s", d.Recommended, d.Target.Source, d.Formula)
		})
	}
}
