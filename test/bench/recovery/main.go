// Command recovery measures how soon the operator reconciles new objects after an outage of the
// API server, on a real control plane that is killed and restarted.
//
//	go run ./test/bench/recovery                                 5 outages each of 2, 20, 60 and 100 s
//	go run ./test/bench/recovery -outages 2s,20s -times 10
//
// It runs a release build of the operator with all its controllers, which keeps running during the outages. As soon as /readyz of the API
// server succeeds, the benchmark creates an object of each kind and measures the time until a watch shows that its controller has
// reconciled it. JobReports are not measured, because the operator does not watch them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

type environment struct {
	harness.Environment
	createdCount int
}

func main() {
	b := &benchmark{durations: []time.Duration{2 * time.Second, 20 * time.Second, time.Minute, 100 * time.Second}, times: 5}
	flag.Func("outages", "comma-separated durations of outages, without the start of the API server (default 2s,20s,60s,100s)", b.parseDurations)
	harness.PositiveFlag(&b.times, "times", "number of outages of each duration")
	harness.RunOnCluster(b.measureOutages, nil)
}

type benchmark struct {
	durations []time.Duration
	times     int
}

func (b *benchmark) parseDurations(text string) error {
	b.durations = nil
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		b.durations = append(b.durations, d)
	}
	return nil
}

func (b *benchmark) measureOutages(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	env := environment{Environment: "bench-recovery"}
	harness.Check(env.CreateNamespace(ctx, c, "nats://127.0.0.1:1")) // unreachable, which all controllers report in the status of their objects
	harness.Check(c.Create(ctx, env.NewRunner("default")))
	operator := env.StartOperator(ctx, operatorBinary, c)
	defer operator.Stop()
	var results []outageResult
	for _, outage := range b.durations {
		for i := range b.times {
			r := env.measureOutage(ctx, c, outage)
			harness.PrintProgress("%s, %d of %d: down for %.1f s, then %s", outage, i+1, b.times, r.downtime.Seconds(), r.describeSlowest())
			results = append(results, r)
		}
	}
	return printReport(b.durations, results)
}

// reconcileTimeout is the time that the operator has to reconcile the objects. Informers of client-go can take up to a minute to reconnect.
const reconcileTimeout = 2 * time.Minute

type outageResult struct {
	outage, downtime time.Duration
	// reconciledAfter is the time from /readyz to the first reconciliation of a new object, by kind.
	reconciledAfter map[string]time.Duration
}

func (r *outageResult) describeSlowest() string {
	text, most := "", time.Duration(-1)
	for kind, took := range r.reconciledAfter {
		if took > most {
			text, most = fmt.Sprintf("%s after %.2f s", kind, took.Seconds()), took
		}
	}
	return text
}

// measureOutage waits until all controllers work, interrupts the control plane, and measures the recovery.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, outage time.Duration) outageResult {
	env.reconcileNewObjects(ctx, c, time.Now())
	away := harness.Must(c.KillControlPlane(ctx, func(string) error { return clock.SleepContext(ctx, outage) }))
	return outageResult{outage, away, env.reconcileNewObjects(ctx, c, time.Now())}
}

// reconcileNewObjects creates an object of each kind that the operator watches, waits until all are reconciled, and
// deletes them. It returns the time from since to the reconciliation, by kind.
func (env *environment) reconcileNewObjects(ctx context.Context, c *harness.Cluster, since time.Time) map[string]time.Duration {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	env.createdCount++
	name := fmt.Sprintf("new-%03d", env.createdCount)
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt = "do it"
	objects := map[string]client.Object{
		"SequentialJob": env.NewSequentialJob(name, time.Second, "only"), "Queue": env.NewQueue(name), "WorkerPool": env.NewWorkerPool(name),
		"Policy": &v1alpha1.Policy{ObjectMeta: env.ObjectMeta(name)}, "AgenticSession": session,
	}
	var mu sync.Mutex
	took := map[string]time.Duration{}
	group, requests := errgroup.WithContext(ctx)
	for kind, object := range objects {
		group.Go(func() error {
			if err := createAndWait(requests, c, kind, object); err != nil {
				return fmt.Errorf("reconciling a new %s: %w", kind, err)
			}
			mu.Lock()
			defer mu.Unlock()
			took[kind] = time.Since(since)
			return nil
		})
	}
	harness.Check(group.Wait())
	for _, object := range objects {
		harness.Check(harness.DeleteWithoutFinalizers(ctx, c, object)) // without a broker, the operator cannot complete the deletion
	}
	return took
}

// createAndWait creates the object and waits until a watch shows that its controller has reconciled it. A new watch starts with the current state.
func createAndWait(ctx context.Context, c *harness.Cluster, kind string, object client.Object) error {
	if err := createWithRetry(ctx, c, object); err != nil {
		return err
	}
	for ctx.Err() == nil {
		named := client.MatchingFields{"metadata.name": object.GetName()}
		events, err := c.Watch(ctx, harness.ListOf(kind), client.InNamespace(object.GetNamespace()), named)
		if err != nil {
			return err
		}
		for event := range events.ResultChan() {
			if seen, ok := event.Object.(*unstructured.Unstructured); ok && harness.ObservedGeneration(seen) > 0 {
				events.Stop()
				return nil
			}
		}
	}
	return ctx.Err()
}

// createWithRetry creates the object. A restarted API server may not serve all kinds at once; this time counts as part of the recovery.
func createWithRetry(ctx context.Context, c *harness.Cluster, object client.Object) error {
	return harness.PollUntil(ctx, reconcileTimeout, func() (bool, error) {
		err := c.Create(ctx, object)
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return true, err
	})
}

// maxTimeToReconcile is the target for the time from /readyz to the first reconciliation of a new object.
const maxTimeToReconcile = 2 * time.Second

func printReport(outages []time.Duration, results []outageResult) error {
	fmt.Printf("\nslowest first reconciliation after /readyz, of %d outages each\n", len(results)/len(outages))
	kinds := slices.Sorted(maps.Keys(results[0].reconciledAfter))
	w := harness.NewTable("seconds\tdowntime\t" + strings.Join(kinds, "\t") + "\t")
	for _, outage := range outages {
		printOutageRow(w, outage, kinds, results)
	}
	_ = w.Flush() // it writes to standard output
	slowest := time.Duration(0)
	for _, r := range results {
		slowest = max(slowest, slices.Max(slices.Collect(maps.Values(r.reconciledAfter))))
	}
	return harness.CheckTarget(fmt.Sprintf("each controller reconciles a new object within %s of /readyz, each time (slowest: %.2f s)", maxTimeToReconcile, slowest.Seconds()), slowest <= maxTimeToReconcile)
}

func printOutageRow(w io.Writer, outage time.Duration, kinds []string, results []outageResult) {
	downtime, slowest := time.Duration(0), map[string]time.Duration{}
	for _, r := range results {
		if r.outage != outage {
			continue
		}
		downtime = max(downtime, r.downtime)
		for _, kind := range kinds {
			slowest[kind] = max(slowest[kind], r.reconciledAfter[kind])
		}
	}
	fmt.Fprintf(w, "down for %s\t%.1f\t", outage, downtime.Seconds())
	for _, kind := range kinds {
		fmt.Fprintf(w, "%.2f\t", slowest[kind].Seconds())
	}
	fmt.Fprintln(w)
}
