// Command bench measures the operator on a real control plane with simulated nodes, next
// to a bare client loop that makes the same Jobs with one watch and keeps nothing.
//
//	make bench                              1, 100 and 1,000 sequences of 3 steps
//	go run ./hack/bench -sizes 100 -steps 5
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
)

// bareLoop, as the first argument, makes this program the loop that is measured.
const bareLoop = "bare-loop"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == bareLoop {
		return runBareLoop(ctx, os.Args[2:])
	}
	return bench(ctx)
}

func bench(ctx context.Context) error {
	sizes := flag.String("sizes", "1,100,1000", "how many sequences run at once, one measurement each")
	steps := flag.Int("steps", 3, "steps of a sequence")
	keep := flag.Bool("keep", false, "leave the cluster up")
	flag.Parse()

	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	if !*keep {
		defer stopCluster(ctx)
	}
	operator, err := buildOperator(ctx)
	if err != nil {
		return err
	}
	printMachine()
	for size := range strings.SplitSeq(*sizes, ",") {
		sequences, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("-sizes: %w", err)
		}
		load := load{sequences: sequences, steps: *steps}
		bare, err := measure(ctx, c, load, bareRunner{})
		if err != nil {
			return fmt.Errorf("bare loop, %d sequences: %w", sequences, err)
		}
		ours, err := measure(ctx, c, load, operatorRunner{operator})
		if err != nil {
			return fmt.Errorf("operator, %d sequences: %w", sequences, err)
		}
		report(load, ours, bare)
	}
	return nil
}
