package main

import (
	"math/rand/v2"
	"testing"
)

// newTestKEDA returns a model with ready workers and waiting messages.
func newTestKEDA(replicas, waiting int, settings kedaSettings) *kedaModel {
	w := newWorkerSimulation(nil, 1)
	w.createPods(replicas)
	w.runUntil(60)
	for range waiting {
		w.waiting.pushMessage(0)
	}
	return &kedaModel{workerSimulation: w, kedaSettings: settings, maxReplicas: 50}
}

func TestAutoscalerSync(t *testing.T) {
	freely := kedaSettings{threshold: 10, stabilization: 60, unlimitedScaleUp: true}
	slowly := kedaSettings{threshold: 10, stabilization: 60}
	for title, test := range map[string]struct {
		replicas, waiting int
		settings          kedaSettings
		want              int
	}{
		"one replica for each threshold":          {2, 95, freely, 10},
		"at most the maximum":                     {2, 5000, freely, 50},
		"a ratio within the tolerance is ignored": {10, 109, freely, 10},
		"a ratio beyond the tolerance scales":     {10, 111, freely, 12},
		"by default at most doubled":              {10, 5000, slowly, 20},
		"by default at least four more":           {1, 5000, slowly, 5},
		"the autoscaler does not scale from zero": {0, 5000, freely, 0},
		"the autoscaler does not scale to zero":   {1, 0, freely, 1},
		"down to the only recommendation":         {10, 20, freely, 2},
	} {
		t.Run(title, func(t *testing.T) {
			k := newTestKEDA(test.replicas, test.waiting, test.settings)
			k.syncAutoscaler()
			if got := len(k.servingPods()); got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
		})
	}
}

func TestHighestRecommendationLimitsScaleDown(t *testing.T) {
	k := newTestKEDA(10, 0, kedaSettings{threshold: 10, stabilization: 60})
	k.recommendations = []recommendation{{k.now - 59, 8}, {k.now - 61, 9}}
	k.syncAutoscaler()
	if got := len(k.servingPods()); got != 8 {
		t.Errorf("%d replicas, want the highest recommendation of the window, 8", got)
	}
}

func TestKEDAScalesFromAndToZero(t *testing.T) {
	for title, test := range map[string]struct {
		replicas, waiting int
		idle              float64
		want              int
	}{
		"a message scales from zero to one": {0, 5000, 0, 1},
		"not to zero before the cooldown":   {3, 0, 299, 3},
		"to zero after the cooldown":        {3, 0, 300, 0},
		"zero remains without messages":     {0, 0, 0, 0},
		"not beyond one":                    {3, 5000, 0, 3},
	} {
		t.Run(title, func(t *testing.T) {
			k := newTestKEDA(test.replicas, test.waiting, kedaSettings{cooldown: 300})
			k.lastActive = k.now - test.idle
			k.pollQueue()
			if got := len(k.servingPods()); got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
		})
	}
}

// A stopped worker finishes what it can in its grace period, and the rest is redelivered.
func TestMessagesOfAStoppedWorkerAreRedelivered(t *testing.T) {
	messages := []queuedMessage{{arrivalTime: 100, serviceTime: 10}, {arrivalTime: 100, serviceTime: 1000}}
	w := newWorkerSimulation(messages, 1)
	w.createPods(1)
	w.runUntil(105)
	w.stopPod(w.pods[0])
	w.createPods(1)
	w.runUntil(2000)
	if w.interruptedWorkers != 1 || w.redeliveredMessages != 1 {
		t.Errorf("%d interrupted workers and %d redelivered messages, want one each", w.interruptedWorkers, w.redeliveredMessages)
	}
	if w.finished != 2 || len(w.waits) != 2 || w.waits[1] != gracePeriodSeconds+leaseSeconds+5 {
		t.Errorf("%d messages finished with waits %v", w.finished, w.waits)
	}
}

func TestEveryMessageHasAWait(t *testing.T) {
	for _, l := range messageLoads() {
		for _, s := range comparedScalers() {
			t.Run(l.name+" "+s.name, func(t *testing.T) {
				t.Parallel()
				want := len(l.drawMessages(rand.New(rand.NewPCG(3, 1))))
				first, second := simulateSeed(l, s, 3), simulateSeed(l, s, 3)
				if len(first.waits) != want {
					t.Errorf("%d of %d messages have a wait", len(first.waits), want)
				}
				if first.podSeconds != second.podSeconds || first.waitQuantile(0.95) != second.waitQuantile(0.95) {
					t.Error("the same seed gives different results")
				}
				if first.waits[0] < 0 {
					t.Errorf("a message has a wait of %.1f s", first.waits[0])
				}
			})
		}
	}
}

func TestYardmasterMeetsTheTargets(t *testing.T) {
	const seeds = 20
	for _, l := range messageLoads() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			our := measureScaler(l, yardmasterScaler(), firstHeldOutSeed, seeds)
			for _, s := range comparedScalers()[1:] {
				if err := our.checkTargets(measureScaler(l, s, firstHeldOutSeed, seeds)); err != nil {
					t.Errorf("compared with %s: %v", s.name, err)
				}
			}
		})
	}
}
