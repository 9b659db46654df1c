package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
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

// The operator is at rest when it has written nothing for restTime, which is longer than it keeps the last version of what
// it wrote. maxRestTime limits the wait for that.
const (
	restTime    = 30 * time.Second
	maxRestTime = 3 * time.Minute
)

func restingMemory(ctx context.Context, operator *testenv.Operator) (now, peak int64, err error) {
	if err := harness.WaitForRest(ctx, operator, restTime, maxRestTime); err != nil {
		return 0, 0, err
	}
	return harness.ProcessMemory(operator.Pid())
}

// runSpec is the spec of each run.
const runSpec = `{"suspend": true, "containers": [{"name": "load", "image": "registry.example/etl:1", "command": ["load"]}]}`

// createBareRuns returns how long a client without the operator needs to create the runs, in a namespace of their own.
func createBareRuns(ctx context.Context, c *harness.Cluster, namespace harness.Environment, count int) (time.Duration, error) {
	if err := namespace.CreateNamespace(ctx, c, "nats://127.0.0.1:1"); err != nil {
		return 0, err
	}
	run := v1alpha1.SequentialJob{}
	if err := json.Unmarshal([]byte(runSpec), &run.Spec); err != nil {
		return 0, err
	}
	startedAt := time.Now()
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range count {
		group.Go(func() error {
			one := run.DeepCopy()
			one.ObjectMeta = namespace.ObjectMeta(fmt.Sprintf("bare-%04d", i))
			return c.Create(requests, one)
		})
	}
	err := group.Wait()
	return time.Since(startedAt), err
}

// createSchedules creates Schedules that are due at the same time, and waits until the operator has observed all.
func createSchedules(ctx context.Context, c *harness.Cluster, env harness.Environment, count int, due time.Time) error {
	utc := due.UTC()
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range count {
		group.Go(func() error {
			s := &v1alpha1.Schedule{ObjectMeta: env.ObjectMeta(fmt.Sprintf("schedule-%04d", i))}
			s.Spec.Schedule = fmt.Sprintf("%d %d %d %d *", utc.Minute(), utc.Hour(), utc.Day(), utc.Month())
			s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{
				Raw: []byte(runSpec),
			}}
			return c.Create(requests, s)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return harness.PollUntil(ctx, time.Until(due), func() (bool, error) {
		var all v1alpha1.ScheduleList
		if err := c.List(ctx, &all, client.InNamespace(string(env))); err != nil {
			return false, err
		}
		waiting := slices.ContainsFunc(all.Items, func(s v1alpha1.Schedule) bool { return s.Status.NextScheduleTime == nil })
		return !waiting, clock.SleepContext(ctx, time.Second)
	})
}

// followRuns returns how long after the due time each run was observed to exist, in order.
func followRuns(ctx context.Context, c *harness.Cluster, env harness.Environment, count int, due time.Time) ([]time.Duration, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, due.Add(2*time.Minute), errors.New("not all runs started within two minutes"))
	defer cancel()
	before := &v1alpha1.SequentialJobList{}
	if err := c.List(ctx, before, client.InNamespace(string(env))); err != nil {
		return nil, err
	}
	// The API server ends watches of clients that are slower than the changes.
	events, err := watch.NewRetryWatcherWithContext(ctx, before.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			return c.Watch(ctx, &v1alpha1.SequentialJobList{}, client.InNamespace(string(env)), &client.ListOptions{Raw: &options})
		},
	})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	var delays []time.Duration
	for event := range events.ResultChan() {
		if event.Type != apiwatch.Added {
			continue
		}
		if delays = append(delays, time.Since(due)); len(delays) == count {
			return delays, nil
		}
	}
	return nil, fmt.Errorf("%d of %d runs: %w", len(delays), count, cmp.Or(context.Cause(ctx), errors.New("the watch ended")))
}
