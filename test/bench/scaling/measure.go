package main

import (
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// meanResults contains the means of the results of all seeds.
type meanResults struct {
	p50, p95, p99                           float64
	podSeconds                              float64
	scaleOperations                         float64
	interruptedWorkers, redeliveredMessages float64
}

// measureScaler simulates a load with each of the seeds.
func measureScaler(l messageLoad, s scalerModel, first, count uint64) meanResults {
	results := make([]simulationResult, count)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range count {
		group.Go(func() error {
			results[i] = simulateSeed(l, s, first+i)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	sum := meanResults{}
	for _, r := range results {
		sum.p50 += r.waitQuantile(0.5)
		sum.p95 += r.waitQuantile(0.95)
		sum.p99 += r.waitQuantile(0.99)
		sum.podSeconds += r.podSeconds
		sum.scaleOperations += float64(r.scaleOperations)
		sum.interruptedWorkers += float64(r.interruptedWorkers)
		sum.redeliveredMessages += float64(r.redeliveredMessages)
	}
	n := float64(count)
	return meanResults{sum.p50 / n, sum.p95 / n, sum.p99 / n, sum.podSeconds / n, sum.scaleOperations / n, sum.interruptedWorkers / n, sum.redeliveredMessages / n}
}

// simulateSeed simulates the load of one seed.
func simulateSeed(l messageLoad, s scalerModel, seed uint64) simulationResult {
	messages := l.drawMessages(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a simulation must be reproducible
	return s.run(newWorkerSimulation(messages, seed), l.maxWorkers)
}

// waitQuantile returns a quantile of the waits, which are sorted.
func (r *simulationResult) waitQuantile(q float64) float64 {
	if len(r.waits) == 0 {
		return 0
	}
	return r.waits[min(int(q*float64(len(r.waits))), len(r.waits)-1)]
}
