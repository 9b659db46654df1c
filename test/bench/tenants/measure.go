package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	probeName = "probe"
	// trialTimeout bounds one measurement.
	trialTimeout = 5 * time.Minute
	// trialPause is the time between two changes of an object.
	trialPause = 200 * time.Millisecond
)

// specChanges are the merge patches that change the spec of each kind, given the number of the trial.
var specChanges = map[string]string{
	"Policy":         `{"spec":{"precedence":%d}}`,
	"Queue":          `{"spec":{"maxBacklog":%d}}`,
	"WorkerPool":     `{"spec":{"priority":%d}}`,
	"SequentialJob":  `{"spec":{"ttlSecondsAfterFinished":%d}}`,
	"AgenticSession": `{"spec":{"displayName":"%d"}}`,
}

// result is what the second tenant observes, and what the operator uses meanwhile.
type result struct {
	latencies map[string][]float64 // in seconds, by kind
	cores     float64
	rss       int64
}

// measure changes the objects of the second tenant, all kinds at the same time.
func (b *benchmark) measure(ctx context.Context, c *harness.Cluster, operator *testenv.Operator) (result, error) {
	startedAt := time.Now()
	cpu, err := harness.ProcessCPUTime(operator.Pid())
	if err != nil {
		return result{}, err
	}
	latencies := make([][]float64, len(kindOrder))
	group, requests := errgroup.WithContext(ctx)
	for i, kind := range kindOrder {
		if specChanges[kind] == "" {
			continue
		}
		group.Go(func() (err error) {
			latencies[i], err = b.measureKind(requests, c, kind)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	r := result{latencies: map[string][]float64{}}
	for i, kind := range kindOrder {
		r.latencies[kind] = latencies[i]
	}
	used, err := harness.ProcessCPUTime(operator.Pid())
	if err != nil {
		return result{}, err
	}
	r.cores = (used - cpu).Seconds() / time.Since(startedAt).Seconds()
	r.rss, _, err = harness.ProcessMemory(operator.Pid())
	return r, err
}

// measureKind changes one object repeatedly.
func (b *benchmark) measureKind(ctx context.Context, c *harness.Cluster, kind string) (latencies []float64, err error) {
	for trial := range b.trials {
		// The offset makes the values differ from those of the previous measurement.
		value := 1 + trial + int(time.Now().Unix()%400)
		latency, err := b.measureChange(ctx, c, kind, fmt.Sprintf(specChanges[kind], value))
		if err != nil {
			return nil, fmt.Errorf("trial %d of kind %s: %w", trial+1, kind, err)
		}
		if latency > 0 {
			latencies = append(latencies, latency.Seconds())
		}
		if err := clock.SleepContext(ctx, trialPause); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// measureChange returns the time from the write of the spec to the arrival of the status. It is zero if the patch did not change the spec.
func (b *benchmark) measureChange(ctx context.Context, c *harness.Cluster, kind, patch string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetNamespace(string(b.victim))
	object.SetName(probeName)
	events, err := c.Watch(ctx, listOf(kind), client.InNamespace(object.GetNamespace()))
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	writtenAt := time.Now()
	if err := c.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return 0, err
	}
	if observedGeneration(object) == object.GetGeneration() {
		return 0, nil
	}
	for event := range events.ResultChan() {
		seen, ok := event.Object.(*unstructured.Unstructured)
		if ok && seen.GetName() == probeName && observedGeneration(seen) >= object.GetGeneration() {
			return time.Since(writtenAt), nil
		}
	}
	return 0, fmt.Errorf("no status observed generation %d: %w", object.GetGeneration(), context.Cause(ctx))
}

// maxLatency is the target for the 99th percentile of the second tenant's latency.
const maxLatency = time.Second

// printReport prints the results and returns an error if a target is missed.
func (b *benchmark) printReport(baseline, crowded result) error {
	fmt.Printf("\nanother tenant has %d objects of every kind; %d changes of each kind\n", b.objects, b.trials)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "seconds until the status observes the spec\talone: p50\tp99\tcrowded: p50\tp99\tmax\t")
	var missed error
	for _, kind := range kindOrder {
		before, after := baseline.latencies[kind], crowded.latencies[kind]
		if len(after) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", kind, harness.Quantile(before, .5), harness.Quantile(before, .99),
			harness.Quantile(after, .5), harness.Quantile(after, .99), harness.Quantile(after, 1))
	}
	fmt.Fprintf(w, "operator's CPU, cores\t%.2f\t\t%.2f\t\t\t\n", baseline.cores, crowded.cores)
	fmt.Fprintf(w, "operator's RSS, MB\t%.0f\t\t%.0f\t\t\t\n", float64(baseline.rss)/1e6, float64(crowded.rss)/1e6)
	_ = w.Flush() // it writes to standard output
	for _, kind := range kindOrder {
		if after := crowded.latencies[kind]; len(after) > 0 {
			target := fmt.Sprintf("p99 of a %s ≤ %s", kind, maxLatency)
			missed = errors.Join(missed, harness.CheckTarget(target, harness.Quantile(after, .99) <= maxLatency.Seconds()))
		}
	}
	return missed
}
