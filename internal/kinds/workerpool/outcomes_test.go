package workerpool

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestARevisionIsWorseOnlyIfChanceDoesNotExplainIt(t *testing.T) {
	rules := analysisRules{minSamples: 20, maxIncrease: 0.05}
	for title, test := range map[string]struct {
		updated, others  Outcomes
		isWorse, isAlike bool
	}{
		"all fail, none before":                 {Outcomes{0, 20}, Outcomes{20, 0}, true, false},
		"half fail, none before":                {Outcomes{10, 10}, Outcomes{20, 0}, true, false},
		"all fail, as before":                   {Outcomes{0, 20}, Outcomes{0, 20}, false, true},
		"half fail, as before":                  {Outcomes{10, 10}, Outcomes{500, 500}, false, true},
		"fewer fail than before":                {Outcomes{19, 1}, Outcomes{0, 20}, false, true},
		"too few messages":                      {Outcomes{0, 19}, Outcomes{1000, 0}, false, false},
		"two of 20, none of 20 before":          {Outcomes{18, 2}, Outcomes{20, 0}, false, false},
		"10 %, none of many before":             {Outcomes{180, 20}, Outcomes{1000, 0}, true, false},
		"within what the analysis allows":       {Outcomes{96_000, 4_000}, Outcomes{100_000, 0}, false, false},
		"beyond it, of millions":                {Outcomes{940_000, 60_000}, Outcomes{10_000_000, 0}, true, false},
		"all fail, and nothing to compare with": {Outcomes{0, 1000}, Outcomes{}, false, false},
	} {
		t.Run(title, func(t *testing.T) {
			c := rules.compare(test.updated, test.others)
			require.True(t, c.isWorse == test.isWorse && c.isAlike == test.isAlike, "worse: %t, alike: %t", c.isWorse, c.isAlike)
		})
	}
}

// The comparison is repeated after each message, as a rollout repeats it.
func TestAnEquallyGoodRevisionRarelyFailsTheComparison(t *testing.T) {
	rules := analysisRules{minSamples: 20, maxIncrease: 0}
	random := rand.New(rand.NewPCG(1, 2))
	const rollouts, messages = 1000, 2000
	failed := 0
	for range rollouts {
		var updated, others Outcomes
		for range messages {
			for _, side := range []*Outcomes{&updated, &others} {
				if random.IntN(10) == 0 {
					side.Failed++
				} else {
					side.Succeeded++
				}
			}
			if rules.compare(updated, others).isWorse {
				failed++
				break
			}
		}
	}
	t.Logf("%d of %d rollouts failed by chance", failed, rollouts)
	require.True(t, failed <= rollouts*8/100, "%d of %d rollouts failed by chance", failed, rollouts)
}

func TestOnlyWhatWorkersCountSinceTheStartIsCompared(t *testing.T) {
	s := rollingPool(4, 1)
	s.changeWorker("worker:1-0", countOutcomes(600, 0)).changeWorker("worker:2-0", countOutcomes(0, 0))
	s.Rollout = Decide(s.Observation).Rollout
	decide := func() (updated, others Outcomes) {
		decision := Decide(s.Observation)
		s.Rollout = decision.Rollout
		return s.Rollout.sumOutcomes()
	}
	s.changeWorker("worker:1-0", countOutcomes(603, 7)).changeWorker("worker:2-0", countOutcomes(2, 5))
	updated, others := decide()
	require.True(t, updated == (Outcomes{2, 5}) && others == (Outcomes{3, 7}), "updated %+v, others %+v", updated, others)
	s.changeWorker("worker:2-0", countOutcomes(1, 0)) // its container restarted
	s.Workers = append(s.Workers, Worker{
		Name: "new", Revision: s.Revisions[1].Hash, Created: testTime.Add(time.Minute), Stats: &WorkerStats{Succeeded: new(int64(4)), Failed: new(int64(0))},
	})
	for range 2 { // and again, after the new worker stopped
		updated, _ = decide()
		require.Equal(t, Outcomes{7, 5}, updated)
		s.Workers = s.Workers[:5]
	}
	s.withImage("worker:3")
	decide()
	require.True(t, s.Rollout.Revision != s.Revisions[1].Name, "another rollout continues the comparison")
}

func TestAVersionThatFailsMoreIsRolledBackInARollingRollout(t *testing.T) {
	failing := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(10, 10)).changeWorker("worker:1-0", countOutcomes(50, 0))
	failing.Rollout = RolloutMemory{Revision: failing.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour)}
	decision := Decide(failing.Observation)
	require.True(t, hasEvent(&decision, v1alpha1.EventRolledBack), "events: %+v", decision.Events)
}

func TestAVersionThatFailsLikeTheOldOneIsPromoted(t *testing.T) {
	s := rollingPool(4, 1).changeWorker("worker:2-0", countOutcomes(0, 30)).changeWorker("worker:1-0", countOutcomes(600, 40))
	s.Rollout = RolloutMemory{Revision: s.Revisions[1].Name, Start: testTime.Add(-2 * time.Hour), Workers: map[string]WorkerOutcomes{
		"worker:1-0": {Before: Outcomes{600, 0}, Latest: Outcomes{600, 0}},
		"worker:1-1": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}}, "worker:1-2": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}}, "worker:1-3": {Before: Outcomes{1, 0}, Latest: Outcomes{1, 0}},
	}}
	decision := Decide(s.Observation)
	drained := workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) })
	require.True(t, len(drained) == 1, "drained %v, want one old worker", drained)
}
