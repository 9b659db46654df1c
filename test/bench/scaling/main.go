// Command scaling compares the operator's scaling function with KEDA and its
// HorizontalPodAutoscaler, in simulated time.
//
//	go run ./test/bench/scaling            prints the comparison
//	go run ./test/bench/scaling -sweep     compares with many settings of KEDA
//
// There are four patterns of arrivals. Each is drawn from several seeds, and all scalers process
// the same messages with the same workers, which take eight seconds to start and process ten
// messages concurrently. The scalers differ in the number of workers and in how they remove them.
//
// All scalers are models. Yardmaster's calls the operator's function every two seconds and drains
// workers before it removes them. keda.go describes the model of KEDA and the autoscaler, whose
// simplifications favor KEDA.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// firstHeldOutSeed is the first seed that was not used before. The function was developed with seeds
// from 1, and its constants were chosen with seeds from 1001 and from 2001.
const firstHeldOutSeed = 3001

func main() {
	if err := runBenchmark(); err != nil {
		fmt.Fprintln(os.Stderr, "scaling:", err)
		os.Exit(1)
	}
}

func runBenchmark() error {
	seeds := flag.Uint64("seeds", 20, "number of seeds for each load")
	all := flag.Bool("sweep", false, "compare with many settings of KEDA, and print which are better")
	flag.Parse()
	if *seeds == 0 || *seeds > 1000 {
		return errors.New("-seeds must be between 1 and 1000")
	}
	if *all {
		return sweepThresholds(os.Stdout, *seeds)
	}
	known := printTable(os.Stdout, fmt.Sprintf("Seeds 1 to %d, with which the function was developed", *seeds), 1, *seeds)
	fmt.Println()
	unknown := printTable(os.Stdout, fmt.Sprintf("Seeds %d to %d, which were held out", firstHeldOutSeed, firstHeldOutSeed+*seeds-1), firstHeldOutSeed, *seeds)
	return errors.Join(known, unknown)
}
