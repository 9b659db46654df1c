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

// reconcileTimeout is the time that the operator has to reconcile the objects. Informers of
// client-go can take up to a minute to reconnect.
const reconcileTimeout = 2 * time.Minute

// outageResult is the result of one outage.
type outageResult struct {
	outage, downtime time.Duration
	// reconciledAfter is the time from /readyz to the first reconciliation of a new object, by
	// kind.
	reconciledAfter map[string]time.Duration
}

// describeSlowest returns the kind that took longest, and its time.
func (r *outageResult) describeSlowest() string {
	text, most := "", time.Duration(-1)
	for kind, took := range r.reconciledAfter {
		if took > most {
			text, most = fmt.Sprintf("%s after %.2f s", kind, took.Seconds()), took
		}
	}
	return text
}

// measureOutage waits until all controllers work, interrupts the control plane, and measures
// the recovery.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, outage time.Duration) (outageResult, error) {
	if _, err := env.reconcileNewObjects(ctx, c, time.Now()); err != nil {
		return outageResult{}, fmt.Errorf("before the outage: %w", err)
	}
	away, err := c.InterruptControlPlane(ctx, outage)
	if err != nil {
		return outageResult{}, err
	}
	took, err := env.reconcileNewObjects(ctx, c, time.Now())
	return outageResult{outage, away, took}, err
}

// reconcileNewObjects creates an object of each kind, waits until all are reconciled, and
// deletes them. It returns the time from since to the reconciliation, by kind.
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
				return fmt.Errorf("reconciling a new %s: %w", probes[i].kind, err)
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

// createAndWait creates the object and returns when it was reconciled.
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

// watchUntilReconciled returns when the object was reconciled. Seen is false if the watch ends
// before that; a new watch starts with the current state.
func (p *newObject) watchUntilReconciled(ctx context.Context, c *harness.Cluster) (at time.Time, seen bool, err error) {
	events, err := c.Watch(ctx, p.list, client.InNamespace(p.object.GetNamespace()), client.MatchingFields{"metadata.name": p.object.GetName()})
	if err != nil {
		return time.Time{}, false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if object, ok := event.Object.(client.Object); ok && p.observedGeneration(object) > 0 {
			return time.Now(), true, nil
		}
	}
	return time.Time{}, false, ctx.Err()
}

// createWithRetry creates the object. A restarted API server may not serve all kinds at once;
// this time counts as part of the recovery.
func (p *newObject) createWithRetry(ctx context.Context, c *harness.Cluster) error {
	return harness.PollUntil(ctx, reconcileTimeout, func() (bool, error) {
		err := c.Create(ctx, p.object)
		if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return true, err
	})
}

// deleteWithoutFinalizers removes the finalizers of an object and deletes it: without a broker,
// the operator cannot complete its deletion.
func deleteWithoutFinalizers(ctx context.Context, c client.Client, object client.Object) error {
	withoutFinalizers := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, object, withoutFinalizers); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
