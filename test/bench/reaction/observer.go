package main

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// observer watches from outside what becomes of the pool that is measured.
type observer struct {
	mu sync.Mutex
	// asked and made are when replicas were first asked for and when a Pod was first made,
	// since the last reset.
	asked, made time.Time
	err         error
}

func observe(ctx context.Context, c *harness.Cluster, ns string) (*observer, error) {
	o := &observer{}
	return o, harness.Follow(ctx, c, o.see, o.ended, []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}},
		client.InNamespace(ns), client.MatchingLabels{pool.LabelWorkerPool: measured})
}

func (o *observer) ended(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *observer) see(event watch.Event, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		if o.asked.IsZero() && event.Type != watch.Deleted && object.Spec.Replicas != nil && *object.Spec.Replicas > 0 {
			o.asked = now
		}
	case *corev1.Pod:
		if o.made.IsZero() && event.Type == watch.Added {
			o.made = now
		}
	}
}

// reset forgets what was seen.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked, o.made = time.Time{}, time.Time{}
}

// seen tells whether both have happened, and when.
func (o *observer) seen() (asked, made time.Time, both bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked, o.made, !o.asked.IsZero() && !o.made.IsZero(), o.err
}
