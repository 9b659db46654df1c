package main

import (
	"math/rand/v2"
	"testing"
)

// newTestKEDA is a model with so many workers there, and so many messages that wait.
func newTestKEDA(replicas, waiting int, settings kedaSettings) *kedaModel {
	y := newWorkerSimulation(nil, 1)
	y.createPods(replicas)
	y.runUntil(60)
	for range waiting {
		y.waiting.pushMessage(0)
	}
	return &kedaModel{workerSimulation: y, kedaSettings: settings, maxReplicas: 50}
}

func TestSyncOfTheAutoscaler(t *testing.T) {
	freely := kedaSettings{threshold: 10, stabilization: 60, unlimitedScaleUp: true}
	slowly := kedaSettings{threshold: 10, stabilization: 60}
	for title, test := range map[string]struct {
		replicas, waiting int
		settings          kedaSettings
		want              int
	}{
		"a replica for each threshold's worth":      {2, 95, freely, 10},
		"never more than the most":                  {2, 5000, freely, 50},
		"a ratio near enough to 1 changes nothing":  {10, 109, freely, 10},
		"one that is not, does":                     {10, 111, freely, 12},
		"by default to the double at most":          {10, 5000, slowly, 20},
		"or by four, if that is more":               {1, 5000, slowly, 5},
		"from 0 it is KEDA's to wake":               {0, 5000, freely, 0},
		"with nothing to do one stays":              {1, 0, freely, 1},
		"down to what is recommended now, at first": {10, 20, freely, 2},
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

func TestTheHighestRecommendationHolds(t *testing.T) {
	k := newTestKEDA(10, 0, kedaSettings{threshold: 10, stabilization: 60})
	k.recommendations = []recommendation{{k.now - 59, 8}, {k.now - 61, 9}}
	k.syncAutoscaler()
	if got := len(k.servingPods()); got != 8 {
		t.Errorf("%d replicas, want the 8 that were recommended within the time", got)
	}
}

func TestPollOfKEDA(t *testing.T) {
	for title, test := range map[string]struct {
		replicas, waiting int
		idle              float64
		want              int
	}{
		"a message wakes one":              {0, 5000, 0, 1},
		"nothing to do is no reason yet":   {3, 0, 299, 3},
		"nothing to do for the cooldown":   {3, 0, 300, 0},
		"no message, nobody to be woken":   {0, 0, 0, 0},
		"beyond one it is not KEDA's work": {3, 5000, 0, 3},
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

// A worker that is stopped at work finishes what it can, and the rest is done again.
func TestStoppedAtWork(t *testing.T) {
	messages := []queuedMessage{{arrivalTime: 100, serviceTime: 10}, {arrivalTime: 100, serviceTime: 1000}}
	y := newWorkerSimulation(messages, 1)
	y.createPods(1)
	y.runUntil(105)
	y.stopPod(y.pods[0])
	y.createPods(1)
	y.runUntil(2000)
	if y.interruptedWorkers != 1 || y.redeliveredMessages != 1 {
		t.Errorf("%d victims and %d messages delivered again, want one each", y.interruptedWorkers, y.redeliveredMessages)
	}
	if y.finished != 2 || len(y.waits) != 2 || y.waits[1] != gracePeriodSeconds+leaseSeconds+5 {
		t.Errorf("%d messages finished, they waited %v", y.finished, y.waits)
	}
}

func TestNothingIsLost(t *testing.T) {
	for _, l := range messageLoads() {
		for _, s := range comparedScalers() {
			t.Run(l.name+" "+s.name, func(t *testing.T) {
				t.Parallel()
				want := len(l.drawMessages(rand.New(rand.NewPCG(3, 1))))
				first, second := simulateSeed(l, s, 3), simulateSeed(l, s, 3)
				if len(first.waits) != want {
					t.Errorf("%d messages were accounted for, of %d", len(first.waits), want)
				}
				if first.podSeconds != second.podSeconds || first.waitQuantile(0.95) != second.waitQuantile(0.95) {
					t.Error("the same seed makes another run")
				}
				if first.waits[0] < 0 {
					t.Errorf("a message waited %.1f s", first.waits[0])
				}
			})
		}
	}
}

// What the table is for: on each load ours waits shorter than KEDA, with no more Pods'
// time, with not many more operations, and stops nobody at work.
func TestOursIsBetter(t *testing.T) {
	const seeds = 20
	for _, l := range messageLoads() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			our := measureScaler(l, yardmasterScaler(), firstHeldOutSeed, seeds)
			for _, s := range comparedScalers()[1:] {
				if err := our.checkTargets(measureScaler(l, s, firstHeldOutSeed, seeds)); err != nil {
					t.Errorf("against %s: %v", s.name, err)
				}
			}
		})
	}
}
