package main

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheModelOfKEDAScalesAsItIsDocumented(t *testing.T) {
	freely := kedaSettings{threshold: 10, stabilization: 60, unlimitedScaleUp: true}
	slowly := kedaSettings{threshold: 10, stabilization: 60}
	poll := kedaSettings{cooldown: 300}
	idleFor := func(seconds float64) func(*kedaModel) {
		return func(k *kedaModel) { k.lastActive = k.now - seconds; k.pollQueue() }
	}
	for title, test := range map[string]struct {
		replicas, waiting int
		settings          kedaSettings
		act               func(*kedaModel)
		want              int
	}{
		"one replica for each threshold":          {2, 95, freely, (*kedaModel).syncAutoscaler, 10},
		"at most the maximum":                     {2, 5000, freely, (*kedaModel).syncAutoscaler, 50},
		"a ratio within the tolerance is ignored": {10, 109, freely, (*kedaModel).syncAutoscaler, 10},
		"a ratio beyond the tolerance scales":     {10, 111, freely, (*kedaModel).syncAutoscaler, 12},
		"by default at most doubled":              {10, 5000, slowly, (*kedaModel).syncAutoscaler, 20},
		"by default at least four more":           {1, 5000, slowly, (*kedaModel).syncAutoscaler, 5},
		"the autoscaler does not scale from zero": {0, 5000, freely, (*kedaModel).syncAutoscaler, 0},
		"the autoscaler does not scale to zero":   {1, 0, freely, (*kedaModel).syncAutoscaler, 1},
		"down to the only recommendation":         {10, 20, freely, (*kedaModel).syncAutoscaler, 2},
		"down to the highest recommendation of the window": {10, 0, slowly, func(k *kedaModel) {
			k.recommendations = []recommendation{{k.now - 59, 8}, {k.now - 61, 9}}
			k.syncAutoscaler()
		}, 8},
		"a message scales from zero to one": {0, 5000, poll, idleFor(0), 1},
		"not to zero before the cooldown":   {3, 0, poll, idleFor(299), 3},
		"to zero after the cooldown":        {3, 0, poll, idleFor(300), 0},
		"zero remains without messages":     {0, 0, poll, idleFor(0), 0},
		"KEDA does not scale beyond one":    {3, 5000, poll, idleFor(0), 3},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkerSimulation(nil, 1)
			w.createPods(test.replicas)
			w.runUntil(60) // all are ready
			w.waiting = make([]int, test.waiting)
			k := &kedaModel{workerSimulation: w, kedaSettings: test.settings, maxReplicas: 50}
			test.act(k)
			require.Equal(t, test.want, len(k.servingPods()))
		})
	}
}

func TestYardmasterMeetsTheTargets(t *testing.T) {
	const seeds = 20
	for _, l := range messageLoads() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			our := measureScaler(l, yardmasterScaler(), firstHeldOutSeed, seeds)
			for _, s := range comparedScalers()[1:] {
				err := our.checkTargets(measureScaler(l, s, firstHeldOutSeed, seeds))
				require.True(t, err == nil, "compared with %s: %v", s.name, err)
			}
		})
	}
}
