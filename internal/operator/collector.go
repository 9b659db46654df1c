package operator

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The targets of the garbage collector: how much the heap may grow beyond the live data, in percent. At rest, the operator mostly
// consists of caches, and memory is scarcer than CPU. Under load a low target costs a third of the CPU time.
// A heap that has grown by much stays fragmented at rest, so beyond maxGrowth it grows by less than targetUnderLoad.
const (
	targetAtRest     = 25
	targetUnderLoad  = 100
	targetLargeHeaps = 50
	maxGrowth        = 24 << 20 // bytes
)

const (
	// collectorInterval is the time between two measurements.
	collectorInterval = 2 * time.Second
	// busyRate is the number of collections per second, with targetAtRest, from which the operator is under load.
	busyRate = 1
	// restAfter is the time without load after which the target is low again.
	restAfter = 20 * time.Second
)

// collectorState has the measurements of the heap that the next target depends on.
type collectorState struct {
	// at is the time of the last measurement, and allocated the bytes allocated until then.
	at        time.Time
	allocated uint64
	// busy is the last time under load.
	busy time.Time
}

// next returns the target for a measurement of the heap, and the state for the next one. With a memory limit, the target is high
// only while the heap would stay below the limit: beyond it, the collector would run all the time.
func (s collectorState) next(now time.Time, allocated, live uint64, limit int64) (collectorState, int) {
	elapsed := now.Sub(s.at).Seconds()
	if elapsed > 0 && !s.at.IsZero() {
		perCollection := max(float64(live)*targetAtRest/100, 1)
		if float64(allocated-s.allocated)/elapsed/perCollection >= busyRate {
			s.busy = now
		}
	}
	s.at, s.allocated = now, allocated
	target := min(max(maxGrowth*100/max(live, 1), targetLargeHeaps), targetUnderLoad)
	grown := float64(live) * (1 + float64(target)/100)
	if s.isAtRest(now) || grown > float64(limit)*3/4 {
		return s, targetAtRest
	}
	return s, int(target)
}

func (s collectorState) isAtRest(now time.Time) bool {
	return s.busy.IsZero() || now.Sub(s.busy) >= restAfter
}

// adaptCollector sets the target of the garbage collector until ctx ends.
func adaptCollector(ctx context.Context) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	limit := debug.SetMemoryLimit(-1) // reads it
	state, target := collectorState{}, targetAtRest
	debug.SetGCPercent(target)
	ticker := time.NewTicker(collectorInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			metrics.Read(samples)
			wanted := 0
			if state, wanted = state.next(now, samples[0].Value.Uint64(), samples[1].Value.Uint64(), limit); wanted != target {
				debug.SetGCPercent(wanted)
				target = wanted
				if state.isAtRest(now) { // and not only near the limit, under load, which needs the memory again at once
					debug.FreeOSMemory()
				}
			}
		}
	}
}
