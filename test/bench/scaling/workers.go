package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// workerConcurrency of a worker.
	workerConcurrency = 10
	// medianPodStart is the median time from a Pod's making until it takes messages.
	medianPodStart = 8.0
	// leaseSeconds after which a message of a killed worker is delivered again.
	leaseSeconds = 30.0
	// gracePeriodSeconds that a Pod has between SIGTERM and SIGKILL: what Kubernetes gives by default.
	gracePeriodSeconds = 30.0
)

// workerSimulation is the queue and its workers.
type workerSimulation struct {
	eventClock
	random   *rand.Rand
	messages []queuedMessage
	waiting  messageQueue
	pods     []*simulatedPod
	// free are the ready pods with room for a message.
	free []*simulatedPod
	simulationResult
	arrived, finished int64
}

// simulationResult is what is measured.
type simulationResult struct {
	waits           []float64
	podSeconds      float64
	scaleOperations int
	// interruptedWorkers were stopped with work in flight, and repeated is how many messages had to be
	// delivered again for it.
	interruptedWorkers, redeliveredMessages int
}

// simulatedPod is a worker.
type simulatedPod struct {
	createdAt float64
	ready     bool
	draining  bool
	// stopped: it has SIGTERM, takes nothing more and ends when it has finished.
	stopped bool
	// working on these messages, since.
	working map[int]float64
	// freeIndex is where it stands in free; -1: it does not.
	freeIndex int
}

func newWorkerSimulation(messages []queuedMessage, seed uint64) *workerSimulation {
	y := &workerSimulation{messages: messages, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // A simulation has to be repeatable.
	y.waits = make([]float64, 0, len(messages))
	y.scheduleArrival(0)
	return y
}

// scheduleArrival plans the arrival of a message, and with it that of the next.
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

// dispatchMessages gives waiting messages to workers that have room, any of them.
func (y *workerSimulation) dispatchMessages() {
	for y.waiting.queuedCount() > 0 && len(y.free) > 0 {
		p := y.free[y.random.IntN(len(y.free))]
		i := y.waiting.popMessage()
		p.working[i] = y.now
		y.updateFreePods(p)
		y.scheduleAfter(y.messages[i].serviceTime, func() { y.finishMessage(p, i) })
	}
}

// finishMessage is the end of a message's work, unless its worker was killed in between.
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

// updateFreePods keeps free right about one pod.
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

// createPods makes so many Pods.
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

// stopPod sends a Pod SIGTERM. It finishes what it can in its grace, as a worker does that
// handles the signal; the rest is redelivered when its lease expires.
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

// removePod is the end of a Pod.
func (y *workerSimulation) removePod(p *simulatedPod) {
	if i := slices.Index(y.pods, p); i >= 0 {
		y.pods = slices.Delete(y.pods, i, i+1)
		y.podSeconds += y.now - p.createdAt
	}
}

// inFlightCount messages, those of Pods that are being stopped too.
func (y *workerSimulation) inFlightCount() int {
	sum := 0
	for _, p := range y.pods {
		sum += len(p.working)
	}
	return sum
}

// servingPods are the Pods that are neither being drained nor stopped, those that start too.
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

// runToEnd counts what is still there.
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
