// Command sessions measures what AgenticSessions cost, on a real control plane with simulated
// nodes, while many of them run.
//
//	go run ./test/bench/sessions                           1,000 that run; 100 more at once, 5 times
//	go run ./test/bench/sessions -sessions 100 -bursts 1
//
// The operator is run as it is built, with all its controllers. The clock of a session runs
// from when the API server has said that it has it to when a watch shows its Job, once for
// sessions that come one at a time and once for those that come all at once. Next to it, a
// bare client makes the same objects and nothing else: the least that it can take here.
// Then sessions are deleted all at once, with the operator and without it, until a watch
// shows that nothing is left of what they were made of. Their namespace enforces the Pod
// Security Standard restricted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() { harness.Main(run, nil) }

func run(ctx context.Context) error {
	y := &yard{Yard: "bench-sessions"}
	flag.IntVar(&y.sessions, "sessions", 1000, "sessions that run all the while")
	flag.IntVar(&y.burst, "burst", 100, "sessions that are made, and deleted, at once")
	flag.IntVar(&y.bursts, "bursts", 5, "how often")
	flag.IntVar(&y.single, "single", 50, "sessions that are made one at a time")
	kubeconfig := flag.String("kubeconfig", "", "a control plane that is up; empty: one of its own")
	flag.Parse()
	if y.sessions < 1 || y.burst < 1 || y.bursts < 1 || y.single < 1 {
		return errors.New("-sessions, -burst, -bursts and -single must be at least 1")
	}
	c, end, err := harness.Open(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return bench(ctx, c, y)
}

func bench(ctx context.Context, c *harness.Cluster, y *yard) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	if err := y.open(ctx, c); err != nil {
		return fmt.Errorf("opening the yard: %w", err)
	}
	o, err := observe(ctx, c, string(y.Yard))
	if err != nil {
		return err
	}
	operator, err := harness.StartOperator(ctx, binary, c, append(harness.WithMetrics(), "--namespaces", string(y.Yard))...)
	if err != nil {
		return err
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			harness.End(operator)
		}
	}
	defer end()
	if err := y.fill(ctx, c, o); err != nil {
		return fmt.Errorf("filling the yard: %w", err)
	}
	fmt.Fprintf(os.Stderr, "  %d sessions run\n", y.sessions)
	r, err := y.measure(ctx, c, o, operator.Process.Pid)
	if err != nil {
		return err
	}
	if r.deleted, err = y.delete(ctx, c, o); err != nil {
		return fmt.Errorf("deleting with the operator: %w", err)
	}
	end()
	if r.deletedAlone, err = y.delete(ctx, c, o); err != nil {
		return fmt.Errorf("deleting without the operator: %w", err)
	}
	return report(y, r)
}
