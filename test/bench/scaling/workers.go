package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// workerConcurrency is the number of messages that a worker processes at the same time.
	workerConcurrency = 10
	// medianPodStart is the median time from the creation of a Pod until it receives messages, in seconds.
	medianPodStart = 8.0
	// leaseSeconds is the time after which the messages of a killed worker are redelivered.
	leaseSeconds = 30.0
	// gracePeriodSeconds is the time between SIGTERM and SIGKILL: the default of Kubernetes.
	gracePeriodSeconds = 30.0
)

// workerSimulation simulates a queue and its workers.
type workerSimulation struct {
	eventClock
	random   *rand.Rand
	messages []queuedMessage
	waiting  []int // indexes of messages in the order of their arrival
	pods     []*simulatedPod
	// free are the ready Pods that can receive a message.
	free []*simulatedPod
	simulationResult
	arrived, finished int64
}

// simulationResult contains the measurements of a simulation.
type simulationResult struct {
	waits           []float64
	podSeconds      float64
	scaleOperations int
	// interruptedWorkers is the number of workers that were stopped with messages in flight, and
	// redeliveredMessages the number of messages that were redelivered as a result.
	interruptedWorkers, redeliveredMessages int
}

// simulatedPod is a worker.
type simulatedPod struct {
	createdAt float64
	ready     bool
	draining  bool
	// stopped is set after SIGTERM: the worker receives no more messages and exits when those in flight are finished.
	stopped bool
	// working contains the messages in flight and the times at which their processing started.
	working map[int]float64
	// freeIndex is the index in workerSimulation.free, or -1.
	freeIndex int
}

// readiness is 1 if the Pod is ready, else 0.
func (p *simulatedPod) readiness() int {
	if p.ready {
		return 1
	}
	return 0
}

func newWorkerSimulation(messages []queuedMessage, seed uint64) *workerSimulation {
	w := &workerSimulation{messages: messages, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a simulation must be reproducible
	w.waits = make([]float64, 0, len(messages))
	w.scheduleArrival(0)
	return w
}

// scheduleArrival schedules the arrival of a message, which schedules the next one.
func (w *workerSimulation) scheduleArrival(i int) {
	if i == len(w.messages) {
		return
	}
	w.scheduleAfter(w.messages[i].arrivalTime-w.now, func() {
		w.arrived++
		w.waiting = append(w.waiting, i)
		w.dispatchMessages()
		w.scheduleArrival(i + 1)
	})
}

// dispatchMessages delivers waiting messages to random workers that can receive them.
func (w *workerSimulation) dispatchMessages() {
	for len(w.waiting) > 0 && len(w.free) > 0 {
		p, i := w.free[w.random.IntN(len(w.free))], w.waiting[0]
		w.waiting = w.waiting[1:]
		p.working[i] = w.now
		w.updateFreePods(p)
		w.scheduleAfter(w.messages[i].serviceTime, func() { w.finishMessage(p, i) })
	}
}

// finishMessage acknowledges a message, unless its worker was killed.
func (w *workerSimulation) finishMessage(p *simulatedPod, i int) {
	startedAt, working := p.working[i]
	if !working {
		return
	}
	delete(p.working, i)
	w.finished++
	w.waits = append(w.waits, startedAt-w.messages[i].arrivalTime)
	if p.stopped && len(p.working) == 0 {
		w.removePod(p)
		return
	}
	w.updateFreePods(p)
	w.dispatchMessages()
}

// updateFreePods adds a Pod to free or removes it.
func (w *workerSimulation) updateFreePods(p *simulatedPod) {
	room := p.ready && !p.draining && !p.stopped && len(p.working) < workerConcurrency
	switch {
	case room && p.freeIndex < 0:
		p.freeIndex = len(w.free)
		w.free = append(w.free, p)
	case !room && p.freeIndex >= 0:
		last := w.free[len(w.free)-1]
		w.free[p.freeIndex], last.freeIndex = last, p.freeIndex
		w.free = w.free[:len(w.free)-1]
		p.freeIndex = -1
	}
}

func (w *workerSimulation) createPods(count int) {
	for range count {
		p := &simulatedPod{createdAt: w.now, freeIndex: -1, working: map[int]float64{}}
		w.pods = append(w.pods, p)
		w.scheduleAfter(medianPodStart*math.Exp(0.3*w.random.NormFloat64()), func() {
			if p.stopped {
				return
			}
			p.ready = true
			w.updateFreePods(p)
			w.dispatchMessages()
		})
	}
}

// stopPod sends SIGTERM to a Pod. The worker finishes what it can in its grace period. The other
// messages are redelivered when their lease expires.
func (w *workerSimulation) stopPod(p *simulatedPod) {
	if len(p.working) > 0 {
		w.interruptedWorkers++
	}
	p.stopped = true
	w.updateFreePods(p)
	if len(p.working) == 0 {
		w.removePod(p)
		return
	}
	w.scheduleAfter(gracePeriodSeconds, func() {
		for _, i := range slices.Sorted(maps.Keys(p.working)) {
			delete(p.working, i)
			w.redeliveredMessages++
			w.scheduleAfter(leaseSeconds, func() {
				w.waiting = append(w.waiting, i)
				w.dispatchMessages()
			})
		}
		w.removePod(p)
	})
}

// removePod removes a Pod that has exited.
func (w *workerSimulation) removePod(p *simulatedPod) {
	if i := slices.Index(w.pods, p); i >= 0 {
		w.pods = slices.Delete(w.pods, i, i+1)
		w.podSeconds += w.now - p.createdAt
	}
}

// inFlightCount returns the number of messages in flight, including those of stopped Pods.
func (w *workerSimulation) inFlightCount() (sum int) {
	for _, p := range w.pods {
		sum += len(p.working)
	}
	return sum
}

// servingPods returns the Pods that are neither draining nor stopped, including starting ones.
func (w *workerSimulation) servingPods() []*simulatedPod {
	return w.selectPods(func(p *simulatedPod) bool { return !p.draining && !p.stopped })
}

func (w *workerSimulation) selectPods(match func(p *simulatedPod) bool) (found []*simulatedPod) {
	for _, p := range w.pods {
		if match(p) {
			found = append(found, p)
		}
	}
	return found
}

// runToEnd runs the simulation and adds the unfinished messages and the remaining Pods.
func (w *workerSimulation) runToEnd() simulationResult {
	w.runUntil(simulationEnd)
	for _, p := range slices.Clone(w.pods) {
		for i := range p.working {
			w.waits = append(w.waits, p.working[i]-w.messages[i].arrivalTime)
		}
		w.removePod(p)
	}
	for _, i := range w.waiting {
		w.waits = append(w.waits, w.now-w.messages[i].arrivalTime)
	}
	slices.Sort(w.waits)
	return w.simulationResult
}
