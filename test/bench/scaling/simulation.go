package main

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
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

type simulationResult struct {
	waits           []float64
	podSeconds      float64
	scaleOperations int
	// interruptedWorkers is the number of workers that were stopped with messages in flight, and
	// redeliveredMessages the number of messages that were redelivered as a result.
	interruptedWorkers, redeliveredMessages int
}

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

type timedEvent struct {
	at float64
	do func()
}

// eventClock runs events in the order of their times, and those of the same time in the order in which they were scheduled, so that a seed
// always gives the same simulation.
type eventClock struct {
	now    float64
	events []timedEvent
}

func (c *eventClock) scheduleAfter(seconds float64, do func()) {
	event := timedEvent{c.now + seconds, do}
	i, _ := slices.BinarySearchFunc(c.events, event.at, func(other timedEvent, at float64) int {
		if other.at <= at {
			return -1
		}
		return 1
	})
	c.events = slices.Insert(c.events, i, event)
}

// scheduleEvery schedules a periodic event, the first time after offset.
func (c *eventClock) scheduleEvery(seconds, offset float64, do func()) {
	c.scheduleAfter(offset, func() {
		do()
		c.scheduleEvery(seconds, seconds, do)
	})
}

func (c *eventClock) runUntil(end float64) {
	for len(c.events) > 0 && c.events[0].at <= end {
		next := c.events[0]
		c.now, c.events = next.at, c.events[1:]
		next.do()
	}
	c.now = end
}

// queuedMessage is a message of a load. Its times are in seconds.
type queuedMessage struct {
	arrivalTime, serviceTime float64
}

// messageLoad is a pattern of arriving messages. A seed determines the messages, so that each scaler gets the same ones.
type messageLoad struct {
	name         string
	maxWorkers   int32
	drawMessages func(r *rand.Rand) []queuedMessage
}

// arrivalPeriod is the time in which messages arrive. The simulation continues until simulationEnd, to finish them.
const (
	arrivalPeriod = 3600.0
	simulationEnd = arrivalPeriod + 900
)

func messageLoads() []messageLoad {
	return []messageLoad{
		{"bursts", 50, drawBursts},   // of 3,000 to 7,000 messages within a second; 1 s each, exponential
		{"sine", 40, drawSineWave},   // 2 to 75 messages per second, with a period of 15 min; 2 s each, lognormal
		{"steps", 40, drawRateSteps}, // a new rate of 0 to 70 messages per second every 5 to 10 min; 2 s each, exponential
		{"spikes", 40, drawSpikes},   // 3 messages per second, and 60 to 140 for 20 to 60 s every 4 to 10 min; 1 s each, lognormal
	}
}

func drawBursts(r *rand.Rand) []queuedMessage {
	var all []queuedMessage
	for i := range 3 {
		at := 1200*float64(i) + 600*r.Float64()
		for range 3000 + r.IntN(4001) {
			all = append(all, queuedMessage{arrivalTime: at + r.Float64(), serviceTime: drawExponential(r, 1)})
		}
	}
	slices.SortFunc(all, func(a, b queuedMessage) int { return cmp.Compare(a.arrivalTime, b.arrivalTime) })
	return all
}

func drawSineWave(r *rand.Rand) []queuedMessage {
	phase := 2 * math.Pi * r.Float64()
	rate := func(t float64) float64 { return 38.5 + 36.5*math.Sin(2*math.Pi*t/900+phase) }
	return drawPoissonArrivals(r, 75, rate, func() float64 { return drawLognormal(r, 2, 1) })
}

func drawRateSteps(r *rand.Rand) []queuedMessage {
	var ends, rates []float64
	for end := 0.0; end < arrivalPeriod; {
		end += 300 + 300*r.Float64()
		ends = append(ends, end)
		rates = append(rates, 70*r.Float64())
	}
	rates[r.IntN(len(rates))] = 0
	rate := func(t float64) float64 {
		i, _ := slices.BinarySearch(ends, t)
		return rates[i]
	}
	return drawPoissonArrivals(r, 70, rate, func() float64 { return drawExponential(r, 2) })
}

func drawSpikes(r *rand.Rand) []queuedMessage {
	var from, until, heights []float64
	for at := 100 + 300*r.Float64(); at < arrivalPeriod; at += 240 + 360*r.Float64() {
		from, until = append(from, at), append(until, at+20+40*r.Float64())
		heights = append(heights, 60+80*r.Float64())
	}
	rate := func(t float64) float64 {
		for i := range from {
			if t >= from[i] && t < until[i] {
				return heights[i]
			}
		}
		return 3
	}
	return drawPoissonArrivals(r, 140, rate, func() float64 { return drawLognormal(r, 1, 1) })
}

// drawPoissonArrivals draws arrivals with a changing rate, by thinning arrivals of the highest rate.
func drawPoissonArrivals(r *rand.Rand, highest float64, rate func(t float64) float64, service func() float64) []queuedMessage {
	var all []queuedMessage
	for t := r.ExpFloat64() / highest; t < arrivalPeriod; t += r.ExpFloat64() / highest {
		if r.Float64()*highest < rate(t) {
			all = append(all, queuedMessage{arrivalTime: t, serviceTime: service()})
		}
	}
	return all
}

func drawExponential(r *rand.Rand, mean float64) float64 { return mean * r.ExpFloat64() }

// drawLognormal draws from a lognormal distribution with a standard deviation of spread times the mean.
func drawLognormal(r *rand.Rand, mean, spread float64) float64 {
	variance := math.Log(1 + spread*spread)
	return math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*r.NormFloat64())
}

// yardmasterModel scales with the operator's function. Its input is the broker's counters: workers report no service times.
type yardmasterModel struct {
	*workerSimulation
	settings scaling.Settings
	memory   scaling.Memory
}

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

func (m *yardmasterModel) stopDrainedPods() {
	for _, p := range m.selectPods(func(p *simulatedPod) bool { return p.draining && len(p.working) == 0 }) {
		m.stopPod(p)
	}
}

func toDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
