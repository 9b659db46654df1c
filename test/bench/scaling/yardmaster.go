package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/scaling"
)

// yardmaster scales by the function that the operator uses, on the figures that the
// broker gives it: counters, and no word of the workers about how long messages take.
type yardmaster struct {
	*yard
	policy scaling.Settings
	memory scaling.Memory
}

// runYardmaster has the load worked off by what our function scales.
func runYardmaster(y *yard, policy scaling.Settings) result {
	m := &yardmaster{yard: y, policy: policy}
	interval := scaling.DecisionInterval.Seconds()
	y.every(interval, interval*y.random.Float64(), m.tick)
	return y.end()
}

// epoch is when simulated time begins.
var epoch = time.Unix(1_000_000_000, 0)

func (m *yardmaster) tick() {
	m.reap()
	serving := m.serving()
	ready := 0
	for _, p := range serving {
		if p.ready {
			ready++
		}
	}
	decision := scaling.Decide(scaling.Observation{
		Now:      epoch.Add(seconds(m.now)),
		Settings: m.policy,
		Replicas: int32(len(serving)), //nolint:gosec // At most some dozens.
		Ready:    int32(ready),
		PodStart: seconds(podStart),
		Stats:    m.figures(),
		Memory:   m.memory,
	})
	m.memory = decision.Memory
	m.scale(int(decision.Applied))
}

func (m *yardmaster) figures() *scaling.BacklogStats {
	f := &scaling.BacklogStats{
		Backlog: int64(m.waiting.len()), InFlight: int64(m.inFlight()),
		Arrived: new(m.arrived), Finished: new(m.finished),
	}
	if f.Backlog > 0 {
		f.OldestAge = seconds(m.now - m.messages[m.waiting.first()].at)
	}
	return f
}

// scale takes drained Pods back before it makes new ones, and drains idle ones before
// busy, the youngest first.
func (m *yardmaster) scale(replicas int) {
	serving := m.serving()
	if replicas == len(serving) {
		return
	}
	m.operations++
	if replicas > len(serving) {
		m.grow(replicas - len(serving))
		return
	}
	slices.SortStableFunc(serving, func(a, b *pod) int {
		return cmp.Or(order(!a.ready, !b.ready), cmp.Compare(len(a.working), len(b.working)), cmp.Compare(b.born, a.born))
	})
	for _, p := range serving[:len(serving)-replicas] {
		p.draining = true
		m.settle(p)
	}
	m.reap()
}

func (m *yardmaster) grow(count int) {
	for _, p := range m.those(func(p *pod) bool { return p.draining }) {
		if count == 0 {
			return
		}
		p.draining = false
		m.settle(p)
		count--
	}
	m.create(count)
	m.dispatch()
}

// reap stops the Pods that are drained.
func (m *yardmaster) reap() {
	for _, p := range m.those(func(p *pod) bool { return p.draining && len(p.working) == 0 }) {
		m.stop(p)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
