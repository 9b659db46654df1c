package main

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// observer watches from outside what the Queues tell of the broker, and what the pool's
// Deployments are asked for.
type observer struct {
	mu    sync.Mutex
	told  map[string]told  // by Queue
	asked map[string]int32 // by Deployment
	// fewest and most replicas that all were asked for since the last reset.
	fewest, most int32
	err          error
}

// told is what a Queue last told of the broker, and when it began to.
type told struct {
	status metav1.ConditionStatus
	at     time.Time
}

func observe(ctx context.Context, c *harness.Cluster, ns string) (*observer, error) {
	o := &observer{told: map[string]told{}, asked: map[string]int32{}}
	return o, harness.Follow(ctx, c, o.see, o.ended, []client.ObjectList{&v1alpha1.QueueList{}, &appsv1.DeploymentList{}}, client.InNamespace(ns))
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
	case *v1alpha1.Queue:
		is := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionBrokerReachable)
		if is != nil && o.told[object.Name].status != is.Status {
			o.told[object.Name] = told{is.Status, now}
		}
	case *appsv1.Deployment:
		if object.Labels[pool.LabelWorkerPool] == "" {
			return
		}
		o.asked[object.Name] = 0
		if event.Type != watch.Deleted && object.Spec.Replicas != nil {
			o.asked[object.Name] = *object.Spec.Replicas
		}
		o.fewest, o.most = min(o.fewest, o.sum()), max(o.most, o.sum())
	}
}

func (o *observer) sum() (sum int32) {
	for _, replicas := range o.asked {
		sum += replicas
	}
	return sum
}

// reset forgets how many replicas were asked for before.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fewest, o.most = o.sum(), o.sum()
}

// replicas are how many are asked for, and the fewest and most since the last reset.
func (o *observer) replicas() (now, fewest, most int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sum(), o.fewest, o.most
}

// telling is when each Queue began to tell that, of those that do.
func (o *observer) telling(status metav1.ConditionStatus) (since []time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.told {
		if t.status == status {
			since = append(since, t.at)
		}
	}
	return since, o.err
}
