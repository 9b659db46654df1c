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
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

func main() { harness.RunMain(runBenchmark, nil) }

func runBenchmark(ctx context.Context) error {
	env := &environment{Environment: "bench-reaction"}
	trials := flag.Int("trials", 20, "number of trials")
	flag.IntVar(&env.burstMessages, "jobs", 5000, "number of messages in a trial")
	flag.IntVar(&env.idlePools, "idle-pools", 9, "number of other pools, which are idle")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running control plane; if empty, a local one is started")
	flag.Parse()
	if *trials < 1 || env.burstMessages < 1 {
		return errors.New("-trials and -jobs must be at least 1")
	}
	c, end, err := harness.OpenCluster(ctx, *kubeconfig)
	if err != nil {
		return err
	}
	defer end()
	return measureReactions(ctx, c, env, *trials)
}

func measureReactions(ctx context.Context, c *harness.Cluster, env *environment, trials int) error {
	binary, err := harness.BuildOperator(ctx)
	if err != nil {
		return err
	}
	harness.PrintMachine()
	nats, err := harness.StartNATS(ctx)
	if err != nil {
		return err
	}
	defer nats.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	if err := env.createObjects(ctx, c, nats.URL); err != nil {
		return fmt.Errorf("creating the environment: %w", err)
	}
	operator, err := harness.StartOperator(ctx, binary, c, "--namespaces", string(env.Environment))
	if err != nil {
		return err
	}
	defer harness.TerminateProcess(operator)
	if err := env.WaitUntilReconciled(ctx, c, waitTimeout, 1+env.idlePools, 1+env.idlePools); err != nil {
		return err
	}
	p, err := connectProducer(nats.URL)
	if err != nil {
		return err
	}
	defer p.closeConnection()
	o, err := startObserver(ctx, c, string(env.Environment))
	if err != nil {
		return err
	}
	var results []trialResult
	for trial := range trials {
		one, err := env.measureTrial(ctx, c, o, p)
		if err != nil {
			return fmt.Errorf("trial %d: %w", trial+1, err)
		}
		fmt.Fprintf(os.Stderr, "  %d of %d: replicas after %.3f s, a Pod after %.3f s\n", trial+1, trials, one.timeToReplicas.Seconds(), one.timeToPod.Seconds())
		results = append(results, one)
	}
	return printReport(env, results)
}
