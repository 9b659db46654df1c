package main

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// poolObserver watches the Deployments and Pods of the measured pool.
type poolObserver struct {
	mu sync.Mutex
	// replicasTime and podTime are when the first replicas and the first Pod were observed
	// since the last reset.
	replicasTime, podTime time.Time
	err                   error
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) (*poolObserver, error) {
	o := &poolObserver{}
	return o, harness.WatchLists(ctx, c, o.recordEvent, o.recordWatchEnd, []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}},
		client.InNamespace(ns), client.MatchingLabels{workerpool.LabelWorkerPool: measuredQueue})
}

func (o *poolObserver) recordWatchEnd(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *poolObserver) recordEvent(event watch.Event, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		if o.replicasTime.IsZero() && event.Type != watch.Deleted && object.Spec.Replicas != nil && *object.Spec.Replicas > 0 {
			o.replicasTime = now
		}
	case *corev1.Pod:
		if o.podTime.IsZero() && event.Type == watch.Added {
			o.podTime = now
		}
	}
}

// resetTimes restarts the observation.
func (o *poolObserver) resetTimes() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replicasTime, o.podTime = time.Time{}, time.Time{}
}

// reactionTimes returns the observed times. Complete is true once both have been observed.
func (o *poolObserver) reactionTimes() (replicasTime, podTime time.Time, complete bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.replicasTime, o.podTime, !o.replicasTime.IsZero() && !o.podTime.IsZero(), o.err
}
