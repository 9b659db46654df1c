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
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
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

const (
	// maxOperationsRatio bounds the ratio of scale operations of Yardmaster and KEDA.
	maxOperationsRatio = 1.5
	// immediateWait is the wait, in seconds, up to which a delivery counts as immediate.
	immediateWait = 0.01
)

type meanResults struct {
	p95, p99, podSeconds, scaleOperations, interruptedWorkers, redeliveredMessages float64
}

// printTable prints a table, and returns an error for each missed target. Yardmaster must have shorter waits, use no more Pod-seconds and not
// many more scale operations, and interrupt no worker.
func printTable(w io.Writer, title string, scalers []scalerModel, first, count uint64) error {
	fmt.Fprintf(w, "%s. Means of an hour.\n\n", title)
	rows := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(rows, "| Load\t| Scaler\t| p95 wait, s\t| p99 wait, s\t| Pod-seconds\t| Scale operations\t| Interrupted workers\t| Redelivered\t|")
	fmt.Fprintln(rows, "|---\t|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	var missed []error
	better := 0
	for _, l := range messageLoads() {
		var our meanResults
		for i, s := range scalers {
			m := measureScaler(l, s, first, count)
			fmt.Fprintf(rows, "| %s\t| %s\t| %.2f\t| %.1f\t| %.0f\t| %.1f\t| %.1f\t| %.1f\t|\n",
				l.name, s.name, m.p95, m.p99, m.podSeconds, m.scaleOperations, m.interruptedWorkers, m.redeliveredMessages)
			if i == 0 {
				our = m
				continue
			}
			if (m.p95 < our.p95 || m.p95 <= immediateWait) && m.podSeconds < our.podSeconds {
				better++
			}
			if err := our.checkTargets(m); err != nil {
				missed = append(missed, fmt.Errorf("%s, compared with %s: %w", l.name, s.name, err))
			}
		}
	}
	err := rows.Flush()
	fmt.Fprintf(w, "\n%d settings of KEDA have shorter waits and use fewer Pod-seconds than Yardmaster.\n", better)
	return errors.Join(errors.Join(missed...), err)
}

// checkTargets returns the targets that Yardmaster, the receiver, misses compared with KEDA.
func (s meanResults) checkTargets(theirs meanResults) error {
	var errs []error
	if s.p95 >= theirs.p95 && s.p95 > immediateWait {
		errs = append(errs, fmt.Errorf("the p95 wait is %.3f s, with KEDA %.3f s", s.p95, theirs.p95))
	}
	if s.podSeconds > theirs.podSeconds {
		errs = append(errs, fmt.Errorf("it uses %.0f Pod-seconds, KEDA %.0f", s.podSeconds, theirs.podSeconds))
	}
	if s.scaleOperations > maxOperationsRatio*theirs.scaleOperations {
		errs = append(errs, fmt.Errorf("it needs %.1f scale operations, KEDA %.1f", s.scaleOperations, theirs.scaleOperations))
	}
	if s.interruptedWorkers > 0 {
		errs = append(errs, fmt.Errorf("%.1f workers were stopped with messages in flight", s.interruptedWorkers))
	}
	return errors.Join(errs...)
}

// measureScaler simulates a load with each of the seeds.
func measureScaler(l messageLoad, s scalerModel, first, count uint64) meanResults {
	results := make([]simulationResult, count)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range count {
		group.Go(func() error {
			results[i] = simulateSeed(l, s, first+i)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	mean, n := meanResults{}, float64(count)
	for _, r := range results {
		mean.p95 += r.waitQuantile(0.95) / n
		mean.p99 += r.waitQuantile(0.99) / n
		mean.podSeconds += r.podSeconds / n
		mean.scaleOperations += float64(r.scaleOperations) / n
		mean.interruptedWorkers += float64(r.interruptedWorkers) / n
		mean.redeliveredMessages += float64(r.redeliveredMessages) / n
	}
	return mean
}

func simulateSeed(l messageLoad, s scalerModel, seed uint64) simulationResult {
	messages := l.drawMessages(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a simulation must be reproducible
	return s.run(newWorkerSimulation(messages, seed), l.maxWorkers)
}

// waitQuantile returns a quantile of the waits, which are sorted.
func (r *simulationResult) waitQuantile(q float64) float64 {
	if len(r.waits) == 0 {
		return 0
	}
	return r.waits[min(int(q*float64(len(r.waits))), len(r.waits)-1)]
}

type scalerModel struct {
	name string
	run  func(w *workerSimulation, most int32) simulationResult
}

// waitObjective is the wait objective of Yardmaster: the shortest waits possible, which are also the purpose of KEDA's thresholds.
const waitObjective = 5 * time.Second

// yardmasterScaler returns Yardmaster with default settings except for the objective.
func yardmasterScaler() scalerModel {
	return scalerModel{"Yardmaster", func(w *workerSimulation, most int32) simulationResult {
		autoscaling := &v1alpha1.Autoscaling{MaxReplicas: most, WaitP95: new(v1alpha1.Duration)}
		autoscaling.WaitP95.Duration.Duration = waitObjective
		m := &yardmasterModel{workerSimulation: w, settings: scaling.NewSettings(autoscaling, workerConcurrency)}
		interval := scaling.DecisionInterval.Seconds()
		w.scheduleEvery(interval, interval*w.random.Float64(), m.scaleOnce)
		return w.runToEnd()
	}}
}

// tunedThreshold is a threshold with which workers are as busy as with Yardmaster.
const tunedThreshold = 8

// tunedKEDA returns KEDA with the settings of an expert, and without a limit of scale-ups.
func tunedKEDA(threshold, stabilization float64) scalerModel {
	return newKEDAScaler(
		fmt.Sprintf("KEDA, tuned, %g s", stabilization),
		kedaSettings{polling: 2, cooldown: stabilization, threshold: threshold, stabilization: stabilization, unlimitedScaleUp: true},
	)
}

func newKEDAScaler(name string, settings kedaSettings) scalerModel {
	return scalerModel{name, func(w *workerSimulation, most int32) simulationResult {
		k := &kedaModel{workerSimulation: w, kedaSettings: settings, maxReplicas: int(most)}
		w.scheduleEvery(k.polling, k.polling*w.random.Float64(), k.pollQueue)
		w.scheduleEvery(autoscalerSyncPeriod, autoscalerSyncPeriod*w.random.Float64(), k.syncAutoscaler)
		return w.runToEnd()
	}}
}

func sweptScalers() []scalerModel {
	all := []scalerModel{yardmasterScaler()}
	for _, threshold := range []float64{6, 7, tunedThreshold, 9, 10, 12, 15, 20, 30} {
		for _, stabilization := range []float64{15, 30, 60} {
			all = append(all, tunedKEDA(threshold, stabilization))
			all[len(all)-1].name += fmt.Sprintf(", %g messages", threshold)
		}
	}
	return all
}

func comparedScalers() []scalerModel {
	byDefault := newKEDAScaler("KEDA, defaults", kedaSettings{polling: 30, cooldown: 300, threshold: 10, stabilization: 300})
	return []scalerModel{yardmasterScaler(), byDefault, tunedKEDA(tunedThreshold, 60), tunedKEDA(tunedThreshold, 30)}
}
