// Command sessions measures what AgenticSessions cost while many of them run, on a real control
// plane with simulated nodes.
//
//	go run ./test/bench/sessions                           1,000 run; 5 bursts of 100 more
//	go run ./test/bench/sessions -sessions 100 -bursts 1
//
// It runs a release build of the operator with all its controllers. The time of a session
// counts from the API server's response to its creation until a watch shows its Job, for
// sessions that are created one at a time and for bursts. For comparison, a bare client creates
// the same objects and nothing else. Then sessions are deleted in bursts, with the operator and
// without it, until a watch shows that all their objects are deleted. The namespace enforces
// the Pod Security Standard restricted.
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
	flag.IntVar(&env.sessions, "sessions", 1000, "number of sessions that run during the benchmark")
	flag.IntVar(&env.burst, "burst", 100, "number of sessions that are created and deleted at once")
	flag.IntVar(&env.bursts, "bursts", 5, "number of bursts")
	flag.IntVar(&env.single, "single", 50, "number of sessions that are created one at a time")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running control plane; if empty, a local one is started")
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
		return fmt.Errorf("creating the namespace: %w", err)
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
		return fmt.Errorf("starting the sessions: %w", err)
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
