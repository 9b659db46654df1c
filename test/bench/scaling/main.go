// Command scalebench compares how our function scales with how KEDA and the
// HorizontalPodAutoscaler do, in simulated time:
//
//	go run ./test/bench/scaling            the table
//	go run ./test/bench/scaling -sweep     many settings of KEDA, against ours
//
// Messages come in four ways; each way is drawn from several seeds, and each scaler gets
// the very same messages. The workers are the same too: ten messages at once, eight
// seconds to start. What differs is who says how many there are, and what becomes of a
// worker that is one too many.
//
// All this is a model. Ours asks the function that the operator uses, every two seconds,
// and removes a worker only after it has finished. Of KEDA's and the autoscaler's loops
// keda.go says what is modelled; in doubt the model is kind to them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// firstHeldOutSeed is where the seeds begin that were held out; the function was developed on those from 1 on,
// and its constants were chosen on some from 1001 on
// and from 2001 on.
const firstHeldOutSeed = 3001

func main() {
	if err := runBenchmark(); err != nil {
		fmt.Fprintln(os.Stderr, "scalebench:", err)
		os.Exit(1)
	}
}

func runBenchmark() error {
	seeds := flag.Uint64("seeds", 20, "from how many seeds each load is drawn")
	all := flag.Bool("sweep", false, "try KEDA with many thresholds, and print which are better than ours")
	flag.Parse()
	if *seeds == 0 || *seeds > 1000 {
		return errors.New("-seeds must be 1 to 1000")
	}
	if *all {
		return sweepThresholds(os.Stdout, *seeds)
	}
	known := printTable(os.Stdout, fmt.Sprintf("Seeds 1 to %d, on which the function was developed", *seeds), 1, *seeds)
	fmt.Println()
	unknown := printTable(os.Stdout, fmt.Sprintf("Seeds %d to %d, on which it was not", firstHeldOutSeed, firstHeldOutSeed+*seeds-1), firstHeldOutSeed, *seeds)
	return errors.Join(known, unknown)
}
