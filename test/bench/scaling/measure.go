package main

import (
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// summary is the mean over the seeds of what was measured.
type summary struct {
	p50, p95, p99     float64
	podSeconds        float64
	operations        float64
	victims, repeated float64
}

// measure has a load, drawn from each of the seeds, worked off.
func measure(l load, s scaler, first, count uint64) summary {
	results := make([]result, count)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range count {
		group.Go(func() error {
			results[i] = play(l, s, first+i)
			return nil
		})
	}
	_ = group.Wait() // nothing fails
	sum := summary{}
	for _, r := range results {
		sum.p50 += r.quantile(0.5)
		sum.p95 += r.quantile(0.95)
		sum.p99 += r.quantile(0.99)
		sum.podSeconds += r.podSeconds
		sum.operations += float64(r.operations)
		sum.victims += float64(r.victims)
		sum.repeated += float64(r.repeated)
	}
	n := float64(count)
	return summary{sum.p50 / n, sum.p95 / n, sum.p99 / n, sum.podSeconds / n, sum.operations / n, sum.victims / n, sum.repeated / n}
}

// play has the load of one seed worked off.
func play(l load, s scaler, seed uint64) result {
	messages := l.draw(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // A simulation has to be repeatable.
	return s.run(newYard(messages, seed), l.most)
}

// quantile of the waits, which are in order.
func (r *result) quantile(q float64) float64 {
	if len(r.waits) == 0 {
		return 0
	}
	return r.waits[min(int(q*float64(len(r.waits))), len(r.waits)-1)]
}
