package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

// yardmasterModel scales with the operator's function. The stats contain only the broker's counters,
// and not the durations of messages that workers report.
type yardmasterModel struct {
	*workerSimulation
	settings scaling.Settings
	memory   scaling.Memory
}

// simulateYardmaster processes the load with workers that the operator's function scales.
func simulateYardmaster(y *workerSimulation, policy scaling.Settings) simulationResult {
	m := &yardmasterModel{workerSimulation: y, settings: policy}
	interval := scaling.DecisionInterval.Seconds()
	y.scheduleEvery(interval, interval*y.random.Float64(), m.scaleOnce)
	return y.runToEnd()
}

// simulationEpoch is the start of simulated time.
var simulationEpoch = time.Unix(1_000_000_000, 0)

func (m *yardmasterModel) scaleOnce() {
	m.stopDrainedPods()
	serving := m.servingPods()
	ready := 0
	for _, p := range serving {
		if p.ready {
			ready++
		}
	}
	decision := scaling.Decide(scaling.Observation{
		Now:      simulationEpoch.Add(toDuration(m.now)),
		Settings: m.settings,
		Replicas: int32(len(serving)), //nolint:gosec // at most a few dozen
		Ready:    int32(ready),
		PodStart: toDuration(medianPodStart),
		Stats:    m.backlogStats(),
		Memory:   m.memory,
	})
	m.memory = decision.Memory
	m.applyReplicas(int(decision.Applied))
}

func (m *yardmasterModel) backlogStats() *scaling.BacklogStats {
	f := &scaling.BacklogStats{
		Backlog: int64(m.waiting.queuedCount()), InFlight: int64(m.inFlightCount()),
		Arrived: new(m.arrived), Finished: new(m.finished),
	}
	if f.Backlog > 0 {
		f.OldestAge = toDuration(m.now - m.messages[m.waiting.firstMessage()].arrivalTime)
	}
	return f
}

// applyReplicas reuses draining Pods before it creates new ones. It drains Pods with the fewest
// messages in flight first, and the youngest among equals.
func (m *yardmasterModel) applyReplicas(replicas int) {
	serving := m.servingPods()
	if replicas == len(serving) {
		return
	}
	m.scaleOperations++
	if replicas > len(serving) {
		m.addWorkers(replicas - len(serving))
		return
	}
	slices.SortStableFunc(serving, func(a, b *simulatedPod) int {
		return cmp.Or(compareTrueFirst(!a.ready, !b.ready), cmp.Compare(len(a.working), len(b.working)), cmp.Compare(b.createdAt, a.createdAt))
	})
	for _, p := range serving[:len(serving)-replicas] {
		p.draining = true
		m.updateFreePods(p)
	}
	m.stopDrainedPods()
}

func (m *yardmasterModel) addWorkers(count int) {
	for _, p := range m.selectPods(func(p *simulatedPod) bool { return p.draining }) {
		if count == 0 {
			return
		}
		p.draining = false
		m.updateFreePods(p)
		count--
	}
	m.createPods(count)
	m.dispatchMessages()
}

// stopDrainedPods stops the draining Pods without messages in flight.
func (m *yardmasterModel) stopDrainedPods() {
	for _, p := range m.selectPods(func(p *simulatedPod) bool { return p.draining && len(p.working) == 0 }) {
		m.stopPod(p)
	}
}

func toDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
