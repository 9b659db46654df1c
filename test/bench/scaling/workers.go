package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// workerConcurrency is the number of messages that a worker processes concurrently.
	workerConcurrency = 10
	// medianPodStart is the median time from the creation of a Pod until it is ready.
	medianPodStart = 8.0
	// leaseSeconds is the time after which a message of a killed worker is redelivered.
	leaseSeconds = 30.0
	// gracePeriodSeconds is the time between SIGTERM and SIGKILL, the default of Kubernetes.
	gracePeriodSeconds = 30.0
)

// workerSimulation simulates a queue and its workers.
type workerSimulation struct {
	eventClock
	random   *rand.Rand
	messages []queuedMessage
	waiting  messageQueue
	pods     []*simulatedPod
	// free are the ready Pods that can accept a message.
	free []*simulatedPod
	simulationResult
	arrived, finished int64
}

// simulationResult contains the measurements of one run.
type simulationResult struct {
	waits           []float64
	podSeconds      float64
	scaleOperations int
	// interruptedWorkers is the number of workers that were stopped with messages in flight, and
	// redeliveredMessages the number of messages that they could not finish.
	interruptedWorkers, redeliveredMessages int
}

// simulatedPod is a Pod of a worker.
type simulatedPod struct {
	createdAt float64
	ready     bool
	draining  bool
	// stopped means that the Pod has received SIGTERM: it accepts no messages, and exits when those
	// in flight are finished.
	stopped bool
	// working contains the start times of the messages in flight, by number.
	working map[int]float64
	// freeIndex is the Pod's index in free, or -1.
	freeIndex int
}

func newWorkerSimulation(messages []queuedMessage, seed uint64) *workerSimulation {
	y := &workerSimulation{messages: messages, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // the simulation must be reproducible
	y.waits = make([]float64, 0, len(messages))
	y.scheduleArrival(0)
	return y
}

// scheduleArrival schedules the arrival of a message, which schedules that of the next one.
func (y *workerSimulation) scheduleArrival(i int) {
	if i == len(y.messages) {
		return
	}
	y.scheduleAfter(y.messages[i].arrivalTime-y.now, func() {
		y.arrived++
		y.waiting.pushMessage(i)
		y.dispatchMessages()
		y.scheduleArrival(i + 1)
	})
}

// dispatchMessages delivers waiting messages to random free workers.
func (y *workerSimulation) dispatchMessages() {
	for y.waiting.queuedCount() > 0 && len(y.free) > 0 {
		p := y.free[y.random.IntN(len(y.free))]
		i := y.waiting.popMessage()
		p.working[i] = y.now
		y.updateFreePods(p)
		y.scheduleAfter(y.messages[i].serviceTime, func() { y.finishMessage(p, i) })
	}
}

// finishMessage completes a message, unless its worker was killed before.
func (y *workerSimulation) finishMessage(p *simulatedPod, i int) {
	began, working := p.working[i]
	if !working {
		return
	}
	delete(p.working, i)
	y.finished++
	y.waits = append(y.waits, began-y.messages[i].arrivalTime)
	if p.stopped && len(p.working) == 0 {
		y.removePod(p)
		return
	}
	y.updateFreePods(p)
	y.dispatchMessages()
}

// updateFreePods adds a Pod to free or removes it from free, as its state requires.
func (y *workerSimulation) updateFreePods(p *simulatedPod) {
	room := p.ready && !p.draining && !p.stopped && len(p.working) < workerConcurrency
	switch {
	case room && p.freeIndex < 0:
		p.freeIndex = len(y.free)
		y.free = append(y.free, p)
	case !room && p.freeIndex >= 0:
		last := y.free[len(y.free)-1]
		y.free[p.freeIndex], last.freeIndex = last, p.freeIndex
		y.free = y.free[:len(y.free)-1]
		p.freeIndex = -1
	}
}

// createPods creates Pods, which become ready after a random time.
func (y *workerSimulation) createPods(count int) {
	for range count {
		p := &simulatedPod{createdAt: y.now, freeIndex: -1, working: map[int]float64{}}
		y.pods = append(y.pods, p)
		y.scheduleAfter(medianPodStart*math.Exp(0.3*y.random.NormFloat64()), func() {
			if p.stopped {
				return
			}
			p.ready = true
			y.updateFreePods(p)
			y.dispatchMessages()
		})
	}
}

// stopPod sends SIGTERM to a Pod. As a worker that handles the signal, it finishes messages within
// the grace period; the others are redelivered when their leases expire.
func (y *workerSimulation) stopPod(p *simulatedPod) {
	if len(p.working) > 0 {
		y.interruptedWorkers++
	}
	p.stopped = true
	y.updateFreePods(p)
	if len(p.working) == 0 {
		y.removePod(p)
		return
	}
	y.scheduleAfter(gracePeriodSeconds, func() {
		for _, i := range slices.Sorted(maps.Keys(p.working)) {
			delete(p.working, i)
			y.redeliveredMessages++
			y.scheduleAfter(leaseSeconds, func() {
				y.waiting.pushMessage(i)
				y.dispatchMessages()
			})
		}
		y.removePod(p)
	})
}

// removePod removes a Pod and counts its pod-seconds.
func (y *workerSimulation) removePod(p *simulatedPod) {
	if i := slices.Index(y.pods, p); i >= 0 {
		y.pods = slices.Delete(y.pods, i, i+1)
		y.podSeconds += y.now - p.createdAt
	}
}

// inFlightCount returns the number of messages in flight, including those of stopped Pods.
func (y *workerSimulation) inFlightCount() int {
	sum := 0
	for _, p := range y.pods {
		sum += len(p.working)
	}
	return sum
}

// servingPods returns the Pods that are neither draining nor stopped, including those that start.
func (y *workerSimulation) servingPods() []*simulatedPod {
	return y.selectPods(func(p *simulatedPod) bool { return !p.draining && !p.stopped })
}

func (y *workerSimulation) selectPods(match func(p *simulatedPod) bool) []*simulatedPod {
	var found []*simulatedPod
	for _, p := range y.pods {
		if match(p) {
			found = append(found, p)
		}
	}
	return found
}

// runToEnd runs the simulation, and then counts the remaining Pods and messages.
func (y *workerSimulation) runToEnd() simulationResult {
	y.runUntil(simulationEnd)
	for _, p := range slices.Clone(y.pods) {
		for i := range p.working {
			y.waits = append(y.waits, p.working[i]-y.messages[i].arrivalTime)
		}
		y.removePod(p)
	}
	for y.waiting.queuedCount() > 0 {
		y.waits = append(y.waits, y.now-y.messages[y.waiting.popMessage()].arrivalTime)
	}
	slices.Sort(y.waits)
	return y.simulationResult
}
