package main

import (
	"math/rand/v2"
	"testing"
)

// newTestKEDA returns a model with these numbers of ready workers and waiting messages.
func newTestKEDA(replicas, waiting int, settings kedaSettings) *kedaModel {
	y := newWorkerSimulation(nil, 1)
	y.createPods(replicas)
	y.runUntil(60)
	for range waiting {
		y.waiting.pushMessage(0)
	}
	return &kedaModel{workerSimulation: y, kedaSettings: settings, maxReplicas: 50}
}

func TestAutoscalerSync(t *testing.T) {
	freely := kedaSettings{threshold: 10, stabilization: 60, unlimitedScaleUp: true}
	slowly := kedaSettings{threshold: 10, stabilization: 60}
	for title, test := range map[string]struct {
		replicas, waiting int
		settings          kedaSettings
		want              int
	}{
		"one replica for each threshold of messages":   {2, 95, freely, 10},
		"at most maxReplicas":                          {2, 5000, freely, 50},
		"no change within the tolerance":               {10, 109, freely, 10},
		"a change outside the tolerance":               {10, 111, freely, 12},
		"by default, at most twice the replicas":       {10, 5000, slowly, 20},
		"by default, at most four more replicas":       {1, 5000, slowly, 5},
		"no change from 0":                             {0, 5000, freely, 0},
		"at least one replica with an empty queue":     {1, 0, freely, 1},
		"scaling down without earlier recommendations": {10, 20, freely, 2},
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

func TestHighestRecommendationInTheStabilizationWindowIsUsed(t *testing.T) {
	k := newTestKEDA(10, 0, kedaSettings{threshold: 10, stabilization: 60})
	k.recommendations = []recommendation{{k.now - 59, 8}, {k.now - 61, 9}}
	k.syncAutoscaler()
	if got := len(k.servingPods()); got != 8 {
		t.Errorf("%d replicas, want the 8 that were recommended within the window", got)
	}
}

func TestKEDAPoll(t *testing.T) {
	for title, test := range map[string]struct {
		replicas, waiting int
		idle              float64
		want              int
	}{
		"a message scales from 0 to 1":       {0, 5000, 0, 1},
		"an empty queue before the cooldown": {3, 0, 299, 3},
		"an empty queue for the cooldown":    {3, 0, 300, 0},
		"an empty queue at 0":                {0, 0, 0, 0},
		"no change above 1":                  {3, 5000, 0, 3},
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

// A stopped worker finishes the messages that end within the grace period. The others are
// redelivered.
func TestInterruptedMessagesAreRedelivered(t *testing.T) {
	messages := []queuedMessage{{arrivalTime: 100, serviceTime: 10}, {arrivalTime: 100, serviceTime: 1000}}
	y := newWorkerSimulation(messages, 1)
	y.createPods(1)
	y.runUntil(105)
	y.stopPod(y.pods[0])
	y.createPods(1)
	y.runUntil(2000)
	if y.interruptedWorkers != 1 || y.redeliveredMessages != 1 {
		t.Errorf("%d interrupted workers and %d redelivered messages, want one each", y.interruptedWorkers, y.redeliveredMessages)
	}
	if y.finished != 2 || len(y.waits) != 2 || y.waits[1] != gracePeriodSeconds+leaseSeconds+5 {
		t.Errorf("%d messages finished, they waited %v", y.finished, y.waits)
	}
}

func TestAllMessagesAreCountedAndRunsAreReproducible(t *testing.T) {
	for _, l := range messageLoads() {
		for _, s := range comparedScalers() {
			t.Run(l.name+" "+s.name, func(t *testing.T) {
				t.Parallel()
				want := len(l.drawMessages(rand.New(rand.NewPCG(3, 1))))
				first, second := simulateSeed(l, s, 3), simulateSeed(l, s, 3)
				if len(first.waits) != want {
					t.Errorf("%d of %d messages were counted", len(first.waits), want)
				}
				if first.podSeconds != second.podSeconds || first.waitQuantile(0.95) != second.waitQuantile(0.95) {
					t.Error("the same seed produces a different result")
				}
				if first.waits[0] < 0 {
					t.Errorf("a message waited %.1f s", first.waits[0])
				}
			})
		}
	}
}

// For each load, messages wait less than with KEDA, without more pod-seconds, many more scale
// operations or interrupted workers.
func TestYardmasterMeetsTargetsAgainstKEDA(t *testing.T) {
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
