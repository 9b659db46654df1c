package main

import (
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// meanResults contains the means of the results of all seeds.
type meanResults struct {
	p95, p99, podSeconds, scaleOperations, interruptedWorkers, redeliveredMessages float64
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
	mean, n := meanResults{}, float64(count)
	for _, r := range results {
		mean.p95 += r.waitQuantile(0.95) / n
		mean.p99 += r.waitQuantile(0.99) / n
		mean.podSeconds += r.podSeconds / n
		mean.scaleOperations += float64(r.scaleOperations) / n
		mean.interruptedWorkers += float64(r.interruptedWorkers) / n
		mean.redeliveredMessages += float64(r.redeliveredMessages) / n
	}
	return mean
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
