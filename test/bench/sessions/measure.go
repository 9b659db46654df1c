package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// sessionResult is what was found.
type sessionResult struct {
	// single and atOnce are how long it took from a session to its Job, when sessions come
	// one at a time and when they come all at once; bare is how long the bare client took.
	single, atOnce, bare []time.Duration
	// requests to the API server for each session, until it ran.
	requests float64
	// rss and peakRSS of the operator, in bytes.
	rss, peakRSS int64
	// deleted is how long it took until nothing was left of a session that was deleted,
	// and deletedAlone the same without the operator.
	deleted, deletedAlone []time.Duration
}

// measureEnvironment makes more sessions, next to those that run.
func (env *environment) measureEnvironment(ctx context.Context, c *harness.Cluster, o *objectObserver, operator int) (r sessionResult, err error) {
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
	before, err := countRequests(ctx)
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
		fmt.Fprintf(os.Stderr, "  burst %d of %d: p99 %.3f s\n", i+1, env.bursts, harness.Quantile(took, .99).Seconds())
	}
	after, err := countRequests(ctx)
	if err != nil {
		return r, err
	}
	r.requests = (after - before) / float64(env.burst*env.bursts)
	if r.rss, r.peakRSS, err = harness.ProcessMemory(operator); err != nil {
		return r, err
	}
	r.bare, err = env.measureBareClient(ctx, c, o)
	return r, err
}

// measureCreation makes so many sessions at once, and sees how long each takes to have its Job.
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

// waitForEach waits until each is seen, and tells how long it took since then.
func waitForEach(ctx context.Context, o *objectObserver, since map[types.UID]time.Time, seen func(types.UID) (time.Time, bool)) (took []time.Duration, err error) {
	err = harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		took = took[:0]
		for uid, began := range since {
			at, is := seen(uid)
			if !is {
				return false, o.watchError()
			}
			took = append(took, max(at.Sub(began), 0))
		}
		return true, nil
	})
	return took, err
}

// measureDeletion deletes as many sessions at once as are made at once, and sees how long it takes until
// nothing is left of each.
func (env *environment) measureDeletion(ctx context.Context, c *harness.Cluster, o *objectObserver) ([]time.Duration, error) {
	if len(env.created) < env.burst {
		return nil, errors.New("there are too few sessions")
	}
	last := env.created[len(env.created)-env.burst:]
	env.created = env.created[:len(env.created)-env.burst]
	began := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	for _, s := range last {
		began[s.UID] = time.Now()
		group.Go(func() error {
			return c.Delete(requests, s, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return waitForEach(ctx, o, began, o.deletionTime)
}

// countRequests that the operator has made.
func countRequests(ctx context.Context) (sum float64, err error) {
	families, err := harness.OperatorMetrics(ctx)
	if err != nil {
		return 0, err
	}
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	return sum, nil
}
