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

// reconcileTimeout with each object. client-go's own informers would need up to a minute.
const reconcileTimeout = 2 * time.Minute

// outageResult is what one outage showed.
type outageResult struct {
	outage, downtime time.Duration
	// reconciledAfter is how long it was from /readyz to the first reconcile of an object that is new,
	// by kind.
	reconciledAfter map[string]time.Duration
}

// describeSlowest tells of the kind that took longest.
func (r *outageResult) describeSlowest() string {
	text, most := "", time.Duration(-1)
	for kind, took := range r.reconciledAfter {
		if took > most {
			text, most = fmt.Sprintf("%s after %.2f s", kind, took.Seconds()), took
		}
	}
	return text
}

// measureOutage waits until all controllers are at work, has the API server go away, and sees them
// be at work again.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, outage time.Duration) (outageResult, error) {
	if _, err := env.reconcileNewObjects(ctx, c, time.Now()); err != nil {
		return outageResult{}, fmt.Errorf("before it: %w", err)
	}
	away, err := c.InterruptControlPlane(ctx, outage)
	if err != nil {
		return outageResult{}, err
	}
	took, err := env.reconcileNewObjects(ctx, c, time.Now())
	return outageResult{outage, away, took}, err
}

// reconcileNewObjects makes an object of each kind, waits until each is reconciled, and takes them
// away again. It tells how long each took since then.
func (env *environment) reconcileNewObjects(ctx context.Context, c *harness.Cluster, since time.Time) (map[string]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	probes := env.newObjects()
	took := make([]time.Duration, len(probes))
	group, requests := errgroup.WithContext(ctx)
	for i := range probes {
		group.Go(func() error {
			at, err := probes[i].createAndWait(requests, c)
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
		if err := deleteWithoutFinalizers(ctx, c, probes[i].object); err != nil {
			return nil, err
		}
	}
	return byKind, nil
}

// createAndWait makes the object, and tells when its controller has told of it.
func (p *newObject) createAndWait(ctx context.Context, c *harness.Cluster) (time.Time, error) {
	if err := p.createWithRetry(ctx, c); err != nil {
		return time.Time{}, err
	}
	for {
		at, seen, err := p.watchUntilReconciled(ctx, c)
		if seen || err != nil {
			return at, err
		}
	}
}

// watchUntilReconciled tells when the controller has told of the object, unless the watch ends before. One
// that is begun anew shows first what there is.
func (p *newObject) watchUntilReconciled(ctx context.Context, c *harness.Cluster) (at time.Time, seen bool, err error) {
	events, err := c.Watch(ctx, p.list, client.InNamespace(p.object.GetNamespace()), client.MatchingFields{"metadata.name": p.object.GetName()})
	if err != nil {
		return time.Time{}, false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if object, is := event.Object.(client.Object); is && p.observedGeneration(object) > 0 {
			return time.Now(), true, nil
		}
	}
	return time.Time{}, false, ctx.Err()
}

// createWithRetry makes the object. An API server that is just back may not serve all kinds at once;
// that time counts.
func (p *newObject) createWithRetry(ctx context.Context, c *harness.Cluster) error {
	return harness.PollUntil(ctx, reconcileTimeout, func() (bool, error) {
		err := c.Create(ctx, p.object)
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return true, err
	})
}

// deleteWithoutFinalizers deletes an object without its finalizers' being heard: there is no broker.
func deleteWithoutFinalizers(ctx context.Context, c client.Client, object client.Object) error {
	none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, object, none); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
