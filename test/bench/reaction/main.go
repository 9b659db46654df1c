// Command reaction measures how soon a WorkerPool at zero scales up, on a real control plane
// with simulated nodes and a real NATS server.
//
//	go run ./test/bench/reaction                         20 trials with 5,000 messages
//	go run ./test/bench/reaction -trials 100 -jobs 1     100 trials with one message
//
// It runs a release build of the operator. Each trial publishes messages as fast as the broker
// accepts them, and measures the time from before the first message until two watches show
// replicas in the pool's Deployment and its first Pod. Then the queue is purged, because
// simulated Pods process nothing, and the pool scales to zero by its own rules before the next
// trial. Other pools stay idle during the benchmark.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	env := &environment{Environment: "bench-reaction", trials: 20, burstMessages: 5000}
	harness.PositiveFlag(&env.trials, "trials", "number of trials")
	harness.PositiveFlag(&env.burstMessages, "jobs", "number of messages in a trial")
	flag.IntVar(&env.idlePools, "idle-pools", 9, "number of other pools, which are idle")
	harness.RunOnCluster(env.measureReactions)
}

func (env *environment) measureReactions(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	nats, end, err := env.StartBroker(ctx, c, env.createObjects)
	if err != nil {
		return err
	}
	defer end()
	operator, err := testenv.StartOperator(ctx, operatorBinary, c.Cluster, "--namespaces", string(env.Environment))
	if err != nil {
		return err
	}
	defer operator.Stop()
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, 1+env.idlePools, 1+env.idlePools); err != nil {
		return err
	}
	p, err := harness.ConnectProducer(nats.URL, measuredQueue)
	if err != nil {
		return err
	}
	defer p.CloseConnection()
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return err
	}
	var results []trialResult
	for trial := range env.trials {
		one, err := env.measureTrial(ctx, c, o, p)
		if err != nil {
			return fmt.Errorf("trial %d: %w", trial+1, err)
		}
		harness.PrintProgress("%d of %d: replicas after %.3f s, a Pod after %.3f s", trial+1, env.trials, one.timeToReplicas.Seconds(), one.timeToPod.Seconds())
		results = append(results, one)
	}
	return printReport(env, results)
}
