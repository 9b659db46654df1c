// Command scaling compares Yardmaster's autoscaling with that of KEDA and the HorizontalPodAutoscaler, in simulated time.
//
//	go run ./test/bench/scaling            the table
//	go run ./test/bench/scaling -sweep     many settings of KEDA, compared with Yardmaster
//
// Messages arrive in four patterns. Each pattern is drawn with several seeds, and each scaler gets the same messages. The workers are also
// the same: they process ten messages at the same time and take eight seconds to start. Only the number of workers and the end of a
// superfluous worker differ.
//
// Everything is a model. Yardmaster's calls the operator's scaling function every two seconds, and removes a worker only after it has
// finished. The model of KEDA and the autoscaler is described in keda.go; where it simplifies, it does so in their favor.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// firstHeldOutSeed is the first of the seeds that were not used before: the scaling function was
// developed with seeds from 1, and its constants were chosen with seeds from 1001 and 2001.
const firstHeldOutSeed = 3001

func main() {
	if err := runBenchmark(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runBenchmark() error {
	seeds := flag.Uint64("seeds", 20, "number of seeds with which each load is simulated")
	all := flag.Bool("sweep", false, "simulate KEDA with many settings, and print which are better than Yardmaster")
	flag.Parse()
	if *seeds == 0 || *seeds > 1000 {
		return errors.New("-seeds must be between 1 and 1000")
	}
	heldOut := fmt.Sprintf("Seeds %d to %d, which were held out", firstHeldOutSeed, firstHeldOutSeed+*seeds-1)
	if *all {
		_ = printTable(os.Stdout, heldOut, sweptScalers(), firstHeldOutSeed, *seeds) // the targets apply to the settings below
		return nil
	}
	known := printTable(os.Stdout, fmt.Sprintf("Seeds 1 to %d, with which the function was developed", *seeds), comparedScalers(), 1, *seeds)
	fmt.Println()
	unknown := printTable(os.Stdout, heldOut, comparedScalers(), firstHeldOutSeed, *seeds)
	return errors.Join(known, unknown)
}
