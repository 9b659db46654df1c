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
	"fmt"
	"sync"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	env := &environment{Environment: "bench-sessions", sessions: 1000, burst: 100, bursts: 5, single: 50}
	harness.PositiveFlag(&env.sessions, "sessions", "number of sessions that run during the benchmark")
	harness.PositiveFlag(&env.burst, "burst", "number of sessions that are created and deleted at once")
	harness.PositiveFlag(&env.bursts, "bursts", "number of bursts")
	harness.PositiveFlag(&env.single, "single", "number of sessions that are created one at a time")
	harness.RunOnCluster(env.measureSessions)
}

func (env *environment) measureSessions(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	if err := env.createNamespace(ctx, c); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return err
	}
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, append(testenv.MetricsFlags(), "--namespaces", string(env.Environment))...)
	if err != nil {
		return err
	}
	end := sync.OnceFunc(operator.Stop)
	defer end()
	if err := env.startSessions(ctx, c, o); err != nil {
		return fmt.Errorf("starting the sessions: %w", err)
	}
	harness.PrintProgress("%d sessions run", env.sessions)
	r, err := env.measureEnvironment(ctx, c, o, operator)
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
