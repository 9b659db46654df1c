// Command reaction measures how soon a WorkerPool at zero asks for workers, on a real
// control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/reaction                         20 times 5,000 messages
//	go run ./test/bench/reaction -trials 100 -jobs 1     100 times a single one
//
// The operator is run as it is built. Each time, messages are published as fast as the
// broker takes them, and two watches see the pool's Deployment be asked for replicas and its
// first Pod be made; the clock runs from before the first message is sent. Then the queue
// is purged, as simulated Pods work off nothing, and the pool goes back to zero by its own
// rules before the next time. Other pools sleep beside it all the while.
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
	trials := flag.Int("trials", 20, "how often it is measured")
	flag.IntVar(&env.burstMessages, "jobs", 5000, "messages of a burst")
	flag.IntVar(&env.idlePools, "beside", 9, "other pools that sleep")
	kubeconfig := flag.String("kubeconfig", "", "a control plane that is up; empty: one of its own")
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
		return fmt.Errorf("filling the yard: %w", err)
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
