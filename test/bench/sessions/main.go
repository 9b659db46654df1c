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

func main() { harness.RunMain(runBenchmark, nil) }

func runBenchmark(ctx context.Context) error {
	env := &environment{Environment: "bench-sessions"}
	flag.IntVar(&env.sessions, "sessions", 1000, "sessions that run all the while")
	flag.IntVar(&env.burst, "burst", 100, "sessions that are made, and deleted, at once")
	flag.IntVar(&env.bursts, "bursts", 5, "how often")
	flag.IntVar(&env.single, "single", 50, "sessions that are made one at a time")
	kubeconfig := flag.String("kubeconfig", "", "a control plane that is up; empty: one of its own")
	flag.Parse()
	if env.sessions < 1 || env.burst < 1 || env.bursts < 1 || env.single < 1 {
		return errors.New("-sessions, -burst, -bursts and -single must be at least 1")
	}
	c, end, err := harness.OpenCluster(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return measureSessions(ctx, c, env)
}

func measureSessions(ctx context.Context, c *harness.Cluster, env *environment) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	if err := env.createNamespace(ctx, c); err != nil {
		return fmt.Errorf("opening the yard: %w", err)
	}
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return err
	}
	operator, err := harness.StartOperator(ctx, binary, c, append(harness.MetricsFlags(), "--namespaces", string(env.Environment))...)
	if err != nil {
		return err
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			harness.TerminateProcess(operator)
		}
	}
	defer end()
	if err := env.startSessions(ctx, c, o); err != nil {
		return fmt.Errorf("filling the yard: %w", err)
	}
	fmt.Fprintf(os.Stderr, "  %d sessions run\n", env.sessions)
	r, err := env.measureEnvironment(ctx, c, o, operator.Process.Pid)
	if err != nil {
		return err
	}
	if r.deleted, err = env.measureDeletion(ctx, c, o); err != nil {
		return fmt.Errorf("deleting with the operator: %w", err)
	}
	end()
	if r.deletedAlone, err = env.measureDeletion(ctx, c, o); err != nil {
		return fmt.Errorf("deleting without the operator: %w", err)
	}
	return printReport(env, r)
}
