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

// result is what was found.
type result struct {
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

// measure makes more sessions, next to those that run.
func (y *yard) measure(ctx context.Context, c *harness.Cluster, o *observer, operator int) (r result, err error) {
	for range y.single {
		took, err := y.launch(ctx, c, o, 1)
		if err != nil {
			return r, fmt.Errorf("one session: %w", err)
		}
		r.single = append(r.single, took...)
	}
	if err := y.awaitRunning(ctx, c, o); err != nil {
		return r, err
	}
	before, err := requests(ctx)
	if err != nil {
		return r, err
	}
	for i := range y.bursts {
		took, err := y.launch(ctx, c, o, y.burst)
		if err != nil {
			return r, fmt.Errorf("burst %d: %w", i+1, err)
		}
		r.atOnce = append(r.atOnce, took...)
		if err := y.awaitRunning(ctx, c, o); err != nil {
			return r, err
		}
		fmt.Fprintf(os.Stderr, "  burst %d of %d: p99 %.3f s\n", i+1, y.bursts, harness.Quantile(took, .99).Seconds())
	}
	after, err := requests(ctx)
	if err != nil {
		return r, err
	}
	r.requests = (after - before) / float64(y.burst*y.bursts)
	if r.rss, r.peakRSS, err = harness.RSSOf(operator); err != nil {
		return r, err
	}
	r.bare, err = y.bare(ctx, c, o)
	return r, err
}

// launch makes so many sessions at once, and sees how long each takes to have its Job.
func (y *yard) launch(ctx context.Context, c *harness.Cluster, o *observer, number int) ([]time.Duration, error) {
	var mu sync.Mutex
	stored := map[types.UID]time.Time{}
	if err := y.create(ctx, c, number, number, func(s *v1alpha1.AgenticSession) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		stored[s.UID] = now
	}); err != nil {
		return nil, err
	}
	return await(ctx, o, stored, o.jobOf)
}

// await waits until each is seen, and tells how long it took since then.
func await(ctx context.Context, o *observer, since map[types.UID]time.Time, seen func(types.UID) (time.Time, bool)) (took []time.Duration, err error) {
	err = harness.Poll(ctx, patience, func() (bool, error) {
		took = took[:0]
		for uid, began := range since {
			at, is := seen(uid)
			if !is {
				return false, o.failure()
			}
			took = append(took, max(at.Sub(began), 0))
		}
		return true, nil
	})
	return took, err
}

// delete deletes as many sessions at once as are made at once, and sees how long it takes until
// nothing is left of each.
func (y *yard) delete(ctx context.Context, c *harness.Cluster, o *observer) ([]time.Duration, error) {
	if len(y.made) < y.burst {
		return nil, errors.New("there are too few sessions")
	}
	last := y.made[len(y.made)-y.burst:]
	y.made = y.made[:len(y.made)-y.burst]
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
	return await(ctx, o, began, o.goneOf)
}

// requests that the operator has made.
func requests(ctx context.Context) (sum float64, err error) {
	families, err := harness.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	return sum, nil
}
