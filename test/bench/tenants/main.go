// Command tenants measures how much the objects of one tenant slow down another tenant, on a real control plane with a real NATS server.
//
//	go run ./test/bench/tenants                  10,000 objects of every kind
//	go run ./test/bench/tenants -objects 1000    1,000 of every kind
//
// It runs a release build of the operator with all its controllers. The first tenant's namespace gets the objects: its Queues refer to a
// broker that does not exist, and its Policies select all of its Queues and WorkerPools. In the namespace of the second tenant there is one
// object of each kind. Once the operator has reconciled all objects, the benchmark changes the spec of each of these repeatedly, and measures
// the time from the write until a watch shows a status with the new observedGeneration. Another measurement before the first tenant's objects
// exist is the baseline.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{victim: "bench-tenant", flood: "bench-crowd", objects: 10_000, trials: 100}
	harness.PositiveFlag(&b.objects, "objects", "number of objects of each kind of the first tenant")
	harness.PositiveFlag(&b.trials, "trials", "number of measured spec changes of each kind")
	flag.DurationVar(&b.settle, "settle", 30*time.Second, "pause between the first reconciliations and the measurement")
	harness.RunOnCluster(b.measureTenants, nil)
}

// benchmark contains the namespaces of both tenants.
type benchmark struct {
	victim, flood   harness.Environment
	objects, trials int
	settle          time.Duration
}

func (b *benchmark) measureTenants(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	nats := harness.StartNATS(ctx)
	defer nats.StopAndRemove()
	defer b.victim.DeleteObjects(ctx, c)
	b.createProbes(ctx, c, nats.URL)
	operator := (b.victim + "," + b.flood).StartOperator(ctx, operatorBinary, c, testenv.MetricsFlags()...)
	defer operator.Stop()
	baseline := b.measure(ctx, c, operator)
	b.createCrowd(ctx, c)
	return b.printReport(baseline, b.measure(ctx, c, operator))
}

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
func (b *benchmark) measure(ctx context.Context, c *harness.Cluster, operator *testenv.Operator) result {
	r, startedAt := result{latencies: map[string][]float64{}}, time.Now()
	cpu := harness.Must(harness.ProcessCPUTime(operator.Pid()))
	var mu sync.Mutex
	group, requests := errgroup.WithContext(ctx)
	for kind := range specChanges {
		group.Go(func() error {
			latencies, err := b.measureKind(requests, c, kind)
			mu.Lock()
			defer mu.Unlock()
			r.latencies[kind] = latencies
			return err
		})
	}
	harness.Check(group.Wait())
	used := harness.Must(harness.ProcessCPUTime(operator.Pid())) - cpu
	r.cores = used.Seconds() / time.Since(startedAt).Seconds()
	r.rss, _ = harness.Must2(harness.ProcessMemory(operator.Pid()))
	return r
}

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
	events, err := c.Watch(ctx, harness.ListOf(kind), client.InNamespace(object.GetNamespace()))
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	writtenAt := time.Now()
	if err := c.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return 0, err
	}
	if harness.ObservedGeneration(object) == object.GetGeneration() {
		return 0, nil
	}
	for event := range events.ResultChan() {
		seen, ok := event.Object.(*unstructured.Unstructured)
		if ok && seen.GetName() == probeName && harness.ObservedGeneration(seen) >= object.GetGeneration() {
			return time.Since(writtenAt), nil
		}
	}
	return 0, fmt.Errorf("no status observed generation %d: %w", object.GetGeneration(), context.Cause(ctx))
}

// maxLatency is the target for the 99th percentile of the second tenant's latency.
const maxLatency = time.Second

func (b *benchmark) printReport(baseline, crowded result) error {
	fmt.Printf("\nanother tenant has %d objects of every kind; %d changes of each kind\n", b.objects, b.trials)
	w := harness.NewTable("seconds until the status observes the spec\talone: p50\tp99\tcrowded: p50\tp99\tmax\t")
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

// reconcileTimeout is the time that the operator has to reconcile all objects of a kind.
const reconcileTimeout = 30 * time.Minute

// kindOrder is the order in which the kinds are created: first what other kinds refer to.
var kindOrder = []string{"SessionRunner", "JobReport", "Policy", "Queue", "WorkerPool", "SequentialJob", "AgenticSession"}

func newObjects(env harness.Environment, name string) map[string]client.Object {
	sequence := env.NewSequentialJob(name, time.Second, "only")
	sequence.Spec.Suspend, sequence.Spec.Template = true, nil
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt, session.Spec.Runner, session.Spec.Suspend = "do it", name, true
	return map[string]client.Object{
		"SessionRunner":  env.NewRunner(name),
		"JobReport":      &v1alpha1.JobReport{ObjectMeta: env.ObjectMeta(name)},
		"Policy":         &v1alpha1.Policy{ObjectMeta: env.ObjectMeta(name)},
		"Queue":          env.NewQueue(name),
		"WorkerPool":     env.NewWorkerPool(name),
		"SequentialJob":  sequence,
		"AgenticSession": session,
	}
}

// createCrowd creates the objects of the first tenant, and waits until they are reconciled.
func (b *benchmark) createCrowd(ctx context.Context, c *harness.Cluster) {
	harness.Check(b.flood.CreateNamespace(ctx, c, "nats://127.0.0.1:1")) // which refuses connections
	for _, kind := range kindOrder {
		startedAt := time.Now()
		harness.Check(harness.CreateAll(ctx, c, b.objects, func(i int) client.Object { return newObjects(b.flood, fmt.Sprintf("crowd-%05d", i))[kind] }))
		created := time.Since(startedAt)
		if kind != "SessionRunner" && kind != "JobReport" { // no controller writes a status of these that observes their spec
			b.waitUntilObserved(ctx, c, kind)
		}
		harness.PrintProgress("%d objects of kind %s are created after %s, and reconciled after %s", b.objects, kind,
			created.Round(time.Second), time.Since(startedAt).Round(time.Second))
	}
	harness.Check(clock.SleepContext(ctx, b.settle))
}

func (b *benchmark) waitUntilObserved(ctx context.Context, c client.Reader, kind string) {
	reportedAt := time.Now()
	harness.Check(harness.PollUntil(ctx, reconcileTimeout, func() (bool, error) {
		list, observed := harness.ListOf(kind), 0
		harness.Check(c.List(ctx, list, client.InNamespace(string(b.flood))))
		for i := range list.Items {
			if harness.ObservedGeneration(&list.Items[i]) > 0 {
				observed++
			}
		}
		if observed == b.objects {
			return true, nil
		}
		if time.Since(reportedAt) > 30*time.Second {
			reportedAt = time.Now()
			harness.PrintProgress("%d objects of kind %s are reconciled", observed, kind)
		}
		return false, clock.SleepContext(ctx, 2*time.Second) // lists of thousands of objects would add load to the control plane
	}))
}

func (b *benchmark) createProbes(ctx context.Context, c *harness.Cluster, url string) {
	harness.Check(b.victim.CreateNamespace(ctx, c, url))
	crowd := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(b.flood)}}
	harness.Check(client.IgnoreAlreadyExists(c.Create(ctx, crowd)))
	objects := newObjects(b.victim, probeName)
	for _, kind := range kindOrder {
		harness.Check(c.Create(ctx, objects[kind]))
	}
}
