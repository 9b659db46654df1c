package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// patience with each object. client-go's own informers would need up to a minute.
const patience = 2 * time.Minute

// result is what one outage showed.
type result struct {
	outage, away time.Duration
	// took is how long it was from /readyz to the first reconcile of an object that is new,
	// by kind.
	took map[string]time.Duration
}

// slowest tells of the kind that took longest.
func (r *result) slowest() string {
	text, most := "", time.Duration(-1)
	for kind, took := range r.took {
		if took > most {
			text, most = fmt.Sprintf("%s after %.2f s", kind, took.Seconds()), took
		}
	}
	return text
}

// measure waits until all controllers are at work, has the API server go away, and sees them
// be at work again.
func (y *yard) measure(ctx context.Context, c *harness.Cluster, outage time.Duration) (result, error) {
	if _, err := y.reconciled(ctx, c, time.Now()); err != nil {
		return result{}, fmt.Errorf("before it: %w", err)
	}
	away, err := c.Outage(ctx, outage)
	if err != nil {
		return result{}, err
	}
	took, err := y.reconciled(ctx, c, time.Now())
	return result{outage, away, took}, err
}

// reconciled makes an object of each kind, waits until each is reconciled, and takes them
// away again. It tells how long each took since then.
func (y *yard) reconciled(ctx context.Context, c *harness.Cluster, since time.Time) (map[string]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	probes := y.probes()
	took := make([]time.Duration, len(probes))
	group, requests := errgroup.WithContext(ctx)
	for i := range probes {
		group.Go(func() error {
			at, err := probes[i].await(requests, c)
			took[i] = at.Sub(since)
			if err != nil {
				return fmt.Errorf("a new %s: %w", probes[i].kind, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	byKind := map[string]time.Duration{}
	for i := range probes {
		byKind[probes[i].kind] = took[i]
		if err := release(ctx, c, probes[i].object); err != nil {
			return nil, err
		}
	}
	return byKind, nil
}

// await makes the object, and tells when its controller has told of it.
func (p *probe) await(ctx context.Context, c *harness.Cluster) (time.Time, error) {
	if err := p.create(ctx, c); err != nil {
		return time.Time{}, err
	}
	for {
		at, seen, err := p.watch(ctx, c)
		if seen || err != nil {
			return at, err
		}
	}
}

// watch tells when the controller has told of the object, unless the watch ends before. One
// that is begun anew shows first what there is.
func (p *probe) watch(ctx context.Context, c *harness.Cluster) (at time.Time, seen bool, err error) {
	events, err := c.Watch(ctx, p.list, client.InNamespace(p.object.GetNamespace()), client.MatchingFields{"metadata.name": p.object.GetName()})
	if err != nil {
		return time.Time{}, false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if object, is := event.Object.(client.Object); is && p.reconciled(object) > 0 {
			return time.Now(), true, nil
		}
	}
	return time.Time{}, false, ctx.Err()
}

// create makes the object. An API server that is just back may not serve all kinds at once;
// that time counts.
func (p *probe) create(ctx context.Context, c *harness.Cluster) error {
	return harness.Poll(ctx, patience, func() (bool, error) {
		err := c.Create(ctx, p.object)
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return true, err
	})
}

// release deletes an object without its finalizers' being heard: there is no broker.
func release(ctx context.Context, c client.Client, object client.Object) error {
	none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, object, none); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
