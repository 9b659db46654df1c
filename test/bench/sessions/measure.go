package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// sessionResult is the result of the benchmark.
type sessionResult struct {
	// single and atOnce are the times from a session to its Job, created one at a time and in
	// bursts. bare is the time of the bare client.
	single, atOnce, bare []time.Duration
	// requests is the number of API requests per session until it runs.
	requests float64
	// rss and peakRSS of the operator, in bytes.
	rss, peakRSS int64
	// deleted is the time until all objects of a deleted session are deleted, and deletedAlone
	// the same without the operator.
	deleted, deletedAlone []time.Duration
}

// measureEnvironment creates more sessions besides those that run.
func (env *environment) measureEnvironment(ctx context.Context, c *harness.Cluster, o *objectObserver, operator *testenv.Operator) (r sessionResult, err error) {
	for range env.single {
		took, err := env.measureCreation(ctx, c, o, 1)
		if err != nil {
			return r, fmt.Errorf("one session: %w", err)
		}
		r.single = append(r.single, took...)
	}
	if err := env.waitUntilRunning(ctx, c, o); err != nil {
		return r, err
	}
	before, err := countRequests(ctx, operator)
	if err != nil {
		return r, err
	}
	for i := range env.bursts {
		took, err := env.measureCreation(ctx, c, o, env.burst)
		if err != nil {
			return r, fmt.Errorf("burst %d: %w", i+1, err)
		}
		r.atOnce = append(r.atOnce, took...)
		if err := env.waitUntilRunning(ctx, c, o); err != nil {
			return r, err
		}
		harness.PrintProgress("burst %d of %d: p99 %.3f s", i+1, env.bursts, harness.Quantile(took, .99).Seconds())
	}
	after, err := countRequests(ctx, operator)
	if err != nil {
		return r, err
	}
	r.requests = (after - before) / float64(env.burst*env.bursts)
	if r.rss, r.peakRSS, err = harness.ProcessMemory(operator.Pid()); err != nil {
		return r, err
	}
	r.bare, err = env.measureBareClient(ctx, c, o)
	return r, err
}

// measureCreation creates the given number of sessions at once, and returns how long each took
// until its Job existed.
func (env *environment) measureCreation(ctx context.Context, c *harness.Cluster, o *objectObserver, number int) ([]time.Duration, error) {
	var mu sync.Mutex
	stored := map[types.UID]time.Time{}
	if err := env.createSessions(ctx, c, number, number, func(s *v1alpha1.AgenticSession) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		stored[s.UID] = now
	}); err != nil {
		return nil, err
	}
	return waitForEach(ctx, o, stored, o.jobCreationTime)
}

func waitForEach(ctx context.Context, o *objectObserver, since map[types.UID]time.Time, seen func(types.UID) (time.Time, bool)) (took []time.Duration, err error) {
	err = harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		took = took[:0]
		for uid, startedAt := range since {
			observedAt, ok := seen(uid)
			if !ok {
				return false, o.watchError()
			}
			took = append(took, max(observedAt.Sub(startedAt), 0))
		}
		return true, nil
	})
	return took, err
}

// measureDeletion deletes one burst of sessions at once, and returns how long each took until
// all its objects were deleted.
func (env *environment) measureDeletion(ctx context.Context, c *harness.Cluster, o *objectObserver) ([]time.Duration, error) {
	if len(env.created) < env.burst {
		return nil, errors.New("fewer sessions are left than a burst deletes")
	}
	last := env.created[len(env.created)-env.burst:]
	env.created = env.created[:len(env.created)-env.burst]
	startTimes := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	for _, s := range last {
		startTimes[s.UID] = time.Now()
		group.Go(func() error {
			return c.Delete(requests, s, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return waitForEach(ctx, o, startTimes, o.deletionTime)
}

func countRequests(ctx context.Context, operator *testenv.Operator) (float64, error) {
	metrics, err := harness.OperatorMetrics(ctx, operator)
	requests, _ := harness.APIRequests(metrics)
	return requests, err
}
