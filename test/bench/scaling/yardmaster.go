package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// yardmasterModel scales with the operator's function. Its input is the broker's counters: workers report no service times.
type yardmasterModel struct {
	*workerSimulation
	settings scaling.Settings
	memory   scaling.Memory
}

// simulationEpoch is the start of simulated time.
var simulationEpoch = time.Unix(1_000_000_000, 0)

func (m *yardmasterModel) scaleOnce() {
	m.stopDrainedPods()
	serving, ready := m.servingPods(), 0
	for _, p := range serving {
		ready += p.readiness()
	}
	decision := scaling.Decide(scaling.Observation{
		Now:      simulationEpoch.Add(toDuration(m.now)),
		Settings: m.settings,
		Replicas: int32(len(serving)), //nolint:gosec // at most maxWorkers
		Ready:    int32(ready),
		PodStart: toDuration(medianPodStart),
		Stats:    m.backlogStats(),
		Memory:   m.memory,
	})
	m.memory = decision.Memory
	m.applyReplicas(int(decision.Applied))
}

func (m *yardmasterModel) backlogStats() *scaling.BacklogStats {
	f := &scaling.BacklogStats{Backlog: int64(len(m.waiting)), Running: int64(m.inFlightCount()), Arrived: new(m.arrived), Finished: new(m.finished)}
	if f.Backlog > 0 {
		f.OldestAge = toDuration(m.now - m.messages[m.waiting[0]].arrivalTime)
	}
	return f
}

// applyReplicas undrains Pods before it creates new ones, and drains idle Pods before busy ones, the youngest first.
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
		return cmp.Or(a.readiness()-b.readiness(), len(a.working)-len(b.working), cmp.Compare(b.createdAt, a.createdAt))
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

// stopDrainedPods stops draining Pods without messages in flight.
func (m *yardmasterModel) stopDrainedPods() {
	for _, p := range m.selectPods(func(p *simulatedPod) bool { return p.draining && len(p.working) == 0 }) {
		m.stopPod(p)
	}
}

func toDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
