// Command schedules measures how soon the operator starts the runs of Schedules that are due in the same second, on a
// real control plane, and the memory that they need.
//
//	go run ./test/bench/schedules                  1,000 Schedules
//	go run ./test/bench/schedules -schedules 100
//	go run ./test/bench/schedules -rounds 5        medians of five rounds, each next to a bare client
//
// It runs a release build of the operator with all its controllers. The runs are suspended SequentialJobs, so that the
// time to run them is not part of the measurement.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func main() {
	b := &benchmark{schedules: 1000, rounds: 1}
	harness.PositiveFlag(&b.schedules, "schedules", "number of Schedules")
	harness.PositiveFlag(&b.rounds, "rounds", "number of rounds")
	harness.RunOnCluster(b.measure, nil)
}

type benchmark struct{ schedules, rounds int }

const (
	// maxRatio is the target for the time from when the runs are due until all exist, as a multiple of the time that a bare client
	// takes to create them.
	maxRatio = 2
	// maxMemory is the target for the memory that is added when the Schedules are due, by their runs.
	maxMemory = 20 << 20
)

func (b *benchmark) measure(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	var namespaces []string
	for i := range b.rounds {
		namespaces = append(namespaces, string(roundNamespace(i)))
		harness.Check(roundNamespace(i).CreateNamespace(ctx, c, "nats://127.0.0.1:1"))
	}
	operator := harness.Environment(strings.Join(namespaces, ",")).StartOperator(ctx, operatorBinary, c, testenv.MetricsFlags()...)
	defer operator.Stop()
	var all []round
	for i := range b.rounds {
		r := b.measureRound(ctx, c, operator, i)
		all = append(all, r)
		fmt.Printf("round %d: runs created after p50 %.2f s, p99 %.2f s, all %.2f s; by a bare client %.2f s: %.2f times that, with %.0f requests, of which %.0f writes\n", i+1,
			r.p50.Seconds(), r.p99.Seconds(), r.all.Seconds(), r.bare.Seconds(), r.ratio(), r.requests, r.writes)
	}
	first := all[0] // a copy, because they are sorted
	fmt.Printf("\nresident memory: %d MB before, %d MB with the Schedules, %d MB with their runs, at most %d MB meanwhile\n",
		first.before>>20, first.resting>>20, first.after>>20, first.peak>>20)
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.ratio(), b.ratio()) })
	median := &all[len(all)/2]
	fmt.Printf("%d Schedules due in the same second, the median of %d rounds: all runs created after %.2f s, by a bare client in %.2f s\n",
		b.schedules, b.rounds, median.all.Seconds(), median.bare.Seconds())
	return harness.CheckTarget(
		fmt.Sprintf("%.2f times the time of the bare client, at most %d, and at most %d MB more memory than before they were due", median.ratio(), maxRatio, maxMemory>>20),
		median.ratio() <= maxRatio && first.after-first.resting <= maxMemory)
}

type round struct {
	// bare is how long a bare client took to create the runs. p50, p99 and all are when the operator had created that many.
	bare, p50, p99, all time.Duration
	// requests and writes, which are some of them, are those that the operator made until then.
	requests, writes float64
	// The memory is measured in the first round.
	before, resting, after, peak int64
}

func (r *round) ratio() float64 { return r.all.Seconds() / r.bare.Seconds() }

func roundNamespace(i int) harness.Environment {
	return harness.Environment(fmt.Sprintf("bench-schedules-%d", i))
}

// measureRound measures the bare client shortly before and after the operator, because other programs on the machine and the garbage
// collections of the API server slow down both.
func (b *benchmark) measureRound(ctx context.Context, c *harness.Cluster, operator *testenv.Operator, i int) (r round) {
	env := roundNamespace(i)
	lead := 50 * time.Second
	if i == 0 {
		lead += restTime
		r.before, _ = restingMemory(ctx, operator)
	}
	due := time.Now().Add(lead).Truncate(time.Minute).Add(time.Minute)
	createSchedules(ctx, c, env, b.schedules, due)
	harness.PrintProgress("%d Schedules are due at %s", b.schedules, due.Format(time.TimeOnly))
	if i == 0 {
		r.resting, _ = restingMemory(ctx, operator)
	}
	harness.Check(clock.SleepContext(ctx, time.Until(due.Add(-25*time.Second))))
	bareBefore := createBareRuns(ctx, c, env+"-before", b.schedules)
	requests, writes := harness.APIRequests(harness.Must(harness.OperatorMetrics(ctx, operator)))
	delays := followRuns(ctx, c, env, b.schedules, due)
	r.requests, r.writes = harness.APIRequests(harness.Must(harness.OperatorMetrics(ctx, operator)))
	r.requests -= requests
	r.writes -= writes
	r.p50, r.p99, r.all = harness.Quantile(delays, 0.5), harness.Quantile(delays, 0.99), delays[len(delays)-1]
	if i == 0 {
		r.after, r.peak = restingMemory(ctx, operator)
	} else {
		harness.Check(harness.WaitForRest(ctx, operator, 2*time.Second, maxRestTime))
	}
	r.bare = (bareBefore + createBareRuns(ctx, c, env+"-after", b.schedules)) / 2
	return r
}

// The operator is at rest when it has written nothing for restTime, which is longer than it keeps the last version of what
// it wrote. maxRestTime limits the wait for that.
const (
	restTime    = 30 * time.Second
	maxRestTime = 3 * time.Minute
)

func restingMemory(ctx context.Context, operator *testenv.Operator) (now, peak int64) {
	harness.Check(harness.WaitForRest(ctx, operator, restTime, maxRestTime))
	return harness.Must2(harness.ProcessMemory(operator.Pid()))
}

const runSpec = `{"suspend": true, "containers": [{"name": "load", "image": "registry.example/etl:1", "command": ["load"]}]}`

// createBareRuns returns how long a client without the operator needs to create the runs, in a namespace of their own.
func createBareRuns(ctx context.Context, c *harness.Cluster, namespace harness.Environment, count int) time.Duration {
	harness.Check(namespace.CreateNamespace(ctx, c, "nats://127.0.0.1:1"))
	run := v1alpha1.SequentialJob{}
	harness.Check(json.Unmarshal([]byte(runSpec), &run.Spec))
	startedAt := time.Now()
	harness.Check(harness.CreateAll(ctx, c, count, func(i int) client.Object {
		one := run.DeepCopy()
		one.ObjectMeta = namespace.ObjectMeta(fmt.Sprintf("bare-%04d", i))
		return one
	}))
	return time.Since(startedAt)
}

// createSchedules creates Schedules that are due at the same time, and waits until the operator has observed all.
func createSchedules(ctx context.Context, c *harness.Cluster, env harness.Environment, count int, due time.Time) {
	utc := due.UTC()
	harness.Check(harness.CreateAll(ctx, c, count, func(i int) client.Object {
		s := &v1alpha1.Schedule{ObjectMeta: env.ObjectMeta(fmt.Sprintf("schedule-%04d", i))}
		s.Spec.Schedule = fmt.Sprintf("%d %d %d %d *", utc.Minute(), utc.Hour(), utc.Day(), utc.Month())
		s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(runSpec)}}
		return s
	}))
	harness.Check(harness.PollUntil(ctx, time.Until(due), func() (bool, error) {
		var all v1alpha1.ScheduleList
		harness.Check(c.List(ctx, &all, client.InNamespace(string(env))))
		waiting := slices.ContainsFunc(all.Items, func(s v1alpha1.Schedule) bool { return s.Status.NextScheduleTime == nil })
		return !waiting, clock.SleepContext(ctx, time.Second)
	}))
}

// followRuns returns how long after the due time each run was observed to exist, in order.
func followRuns(ctx context.Context, c *harness.Cluster, env harness.Environment, count int, due time.Time) (delays []time.Duration) {
	ctx, cancel := context.WithDeadlineCause(ctx, due.Add(2*time.Minute), errors.New("not all runs started within two minutes"))
	defer cancel()
	before := &v1alpha1.SequentialJobList{}
	harness.Check(c.List(ctx, before, client.InNamespace(string(env))))
	// The API server ends watches of clients that are slower than the changes.
	events := harness.Must(watch.NewRetryWatcherWithContext(ctx, before.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			return c.Watch(ctx, &v1alpha1.SequentialJobList{}, client.InNamespace(string(env)), &client.ListOptions{Raw: &options})
		},
	}))
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == apiwatch.Added {
			delays = append(delays, time.Since(due))
		}
		if len(delays) == count {
			return delays
		}
	}
	harness.Check(fmt.Errorf("%d of %d runs: %w", len(delays), count, cmp.Or(context.Cause(ctx), errors.New("the watch ended"))))
	return nil
}
