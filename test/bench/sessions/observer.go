package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/session"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// observer watches from outside what sessions are made of.
type observer struct {
	mu sync.Mutex
	// jobs is when a session's Job was first seen, left is what there is of a session, and
	// gone when the last of it went. All by the session's UID.
	jobs, gone map[types.UID]time.Time
	left       map[types.UID]map[string]bool
	err        error
}

func observe(ctx context.Context, c *harness.Cluster, ns string) (*observer, error) {
	o := &observer{jobs: map[types.UID]time.Time{}, gone: map[types.UID]time.Time{}, left: map[types.UID]map[string]bool{}}
	return o, harness.Follow(ctx, c, o.see, o.ended, []client.ObjectList{
		&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{},
	}, client.InNamespace(ns), client.HasLabels{session.LabelSessionUID})
}

func (o *observer) ended(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *observer) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *observer) see(event watch.Event, now time.Time) {
	object, is := event.Object.(client.Object)
	if !is {
		return
	}
	uid, what := types.UID(object.GetLabels()[session.LabelSessionUID]), fmt.Sprintf("%T %s", object, object.GetName())
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, isJob := object.(*batchv1.Job); isJob && o.jobs[uid].IsZero() {
		o.jobs[uid] = now
	}
	if event.Type != watch.Deleted {
		if o.left[uid] == nil {
			o.left[uid] = map[string]bool{}
		}
		o.left[uid][what] = true
		return
	}
	delete(o.left[uid], what)
	if len(o.left[uid]) == 0 {
		o.gone[uid] = now
	}
}

// jobOf is when the session's Job was first seen.
func (o *observer) jobOf(uid types.UID) (at time.Time, seen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, seen = o.jobs[uid]
	return at, seen
}

// goneOf is when the last of what the session was made of went, if nothing is left.
func (o *observer) goneOf(uid types.UID) (at time.Time, all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone[uid], len(o.left[uid]) == 0 && !o.gone[uid].IsZero()
}
