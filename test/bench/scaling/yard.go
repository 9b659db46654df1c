package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// concurrency of a worker.
	concurrency = 10
	// podStart is the median time from a Pod's making until it takes messages.
	podStart = 8.0
	// lease after which a message of a killed worker is delivered again.
	lease = 30.0
	// grace that a Pod has between SIGTERM and SIGKILL: what Kubernetes gives by default.
	grace = 30.0
)

// yard is the queue and its workers.
type yard struct {
	clock
	random   *rand.Rand
	messages []message
	waiting  fifo
	pods     []*pod
	// free are the ready pods with room for a message.
	free []*pod
	result
	arrived, finished int64
}

// result is what is measured.
type result struct {
	waits      []float64
	podSeconds float64
	operations int
	// victims were stopped with work in flight, and repeated is how many messages had to be
	// delivered again for it.
	victims, repeated int
}

// pod is a worker.
type pod struct {
	born     float64
	ready    bool
	draining bool
	// stopped: it has SIGTERM, takes nothing more and ends when it has finished.
	stopped bool
	// working on these messages, since.
	working map[int]float64
	// atFree is where it stands in free; -1: it does not.
	atFree int
}

func newYard(messages []message, seed uint64) *yard {
	y := &yard{messages: messages, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // A simulation has to be repeatable.
	y.waits = make([]float64, 0, len(messages))
	y.arrive(0)
	return y
}

// arrive plans the arrival of a message, and with it that of the next.
func (y *yard) arrive(i int) {
	if i == len(y.messages) {
		return
	}
	y.after(y.messages[i].at-y.now, func() {
		y.arrived++
		y.waiting.push(i)
		y.dispatch()
		y.arrive(i + 1)
	})
}

// dispatch gives waiting messages to workers that have room, any of them.
func (y *yard) dispatch() {
	for y.waiting.len() > 0 && len(y.free) > 0 {
		p := y.free[y.random.IntN(len(y.free))]
		i := y.waiting.pop()
		p.working[i] = y.now
		y.settle(p)
		y.after(y.messages[i].service, func() { y.finish(p, i) })
	}
}

// finish is the end of a message's work, unless its worker was killed in between.
func (y *yard) finish(p *pod, i int) {
	began, working := p.working[i]
	if !working {
		return
	}
	delete(p.working, i)
	y.finished++
	y.waits = append(y.waits, began-y.messages[i].at)
	if p.stopped && len(p.working) == 0 {
		y.remove(p)
		return
	}
	y.settle(p)
	y.dispatch()
}

// settle keeps free right about one pod.
func (y *yard) settle(p *pod) {
	room := p.ready && !p.draining && !p.stopped && len(p.working) < concurrency
	switch {
	case room && p.atFree < 0:
		p.atFree = len(y.free)
		y.free = append(y.free, p)
	case !room && p.atFree >= 0:
		last := y.free[len(y.free)-1]
		y.free[p.atFree], last.atFree = last, p.atFree
		y.free = y.free[:len(y.free)-1]
		p.atFree = -1
	}
}

// create makes so many Pods.
func (y *yard) create(count int) {
	for range count {
		p := &pod{born: y.now, atFree: -1, working: map[int]float64{}}
		y.pods = append(y.pods, p)
		y.after(podStart*math.Exp(0.3*y.random.NormFloat64()), func() {
			if p.stopped {
				return
			}
			p.ready = true
			y.settle(p)
			y.dispatch()
		})
	}
}

// stop sends a Pod SIGTERM. It finishes what it can in its grace, as a worker does that
// handles the signal; the rest is redelivered when its lease expires.
func (y *yard) stop(p *pod) {
	if len(p.working) > 0 {
		y.victims++
	}
	p.stopped = true
	y.settle(p)
	if len(p.working) == 0 {
		y.remove(p)
		return
	}
	y.after(grace, func() {
		for _, i := range slices.Sorted(maps.Keys(p.working)) {
			delete(p.working, i)
			y.repeated++
			y.after(lease, func() {
				y.waiting.push(i)
				y.dispatch()
			})
		}
		y.remove(p)
	})
}

// remove is the end of a Pod.
func (y *yard) remove(p *pod) {
	if i := slices.Index(y.pods, p); i >= 0 {
		y.pods = slices.Delete(y.pods, i, i+1)
		y.podSeconds += y.now - p.born
	}
}

// inFlight messages, those of Pods that are being stopped too.
func (y *yard) inFlight() int {
	sum := 0
	for _, p := range y.pods {
		sum += len(p.working)
	}
	return sum
}

// serving are the Pods that are neither being drained nor stopped, those that start too.
func (y *yard) serving() []*pod {
	return y.those(func(p *pod) bool { return !p.draining && !p.stopped })
}

func (y *yard) those(match func(p *pod) bool) []*pod {
	var found []*pod
	for _, p := range y.pods {
		if match(p) {
			found = append(found, p)
		}
	}
	return found
}

// end counts what is still there.
func (y *yard) end() result {
	y.run(horizon)
	for _, p := range slices.Clone(y.pods) {
		for i := range p.working {
			y.waits = append(y.waits, p.working[i]-y.messages[i].at)
		}
		y.remove(p)
	}
	for y.waiting.len() > 0 {
		y.waits = append(y.waits, y.now-y.messages[y.waiting.pop()].at)
	}
	slices.Sort(y.waits)
	return y.result
}
