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

	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// objectObserver watches the objects that sessions consist of.
type objectObserver struct {
	mu sync.Mutex
	// jobTimes contains when each session's Job was first observed, remainingObjects what
	// exists of a session, and deletionTimes when its last object was deleted. All are keyed by
	// the session's UID.
	jobTimes, deletionTimes map[types.UID]time.Time
	remainingObjects        map[types.UID]map[string]bool
	err                     error
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) (*objectObserver, error) {
	o := &objectObserver{jobTimes: map[types.UID]time.Time{}, deletionTimes: map[types.UID]time.Time{}, remainingObjects: map[types.UID]map[string]bool{}}
	return o, harness.WatchLists(ctx, c, o.recordEvent, o.recordWatchEnd, []client.ObjectList{
		&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{},
	}, client.InNamespace(ns), client.HasLabels{agenticsession.LabelSessionUID})
}

func (o *objectObserver) recordWatchEnd(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *objectObserver) watchError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *objectObserver) recordEvent(event watch.Event, now time.Time) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	uid, what := types.UID(object.GetLabels()[agenticsession.LabelSessionUID]), fmt.Sprintf("%T %s", object, object.GetName())
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, isJob := object.(*batchv1.Job); isJob && o.jobTimes[uid].IsZero() {
		o.jobTimes[uid] = now
	}
	if event.Type != watch.Deleted {
		if o.remainingObjects[uid] == nil {
			o.remainingObjects[uid] = map[string]bool{}
		}
		o.remainingObjects[uid][what] = true
		return
	}
	delete(o.remainingObjects[uid], what)
	if len(o.remainingObjects[uid]) == 0 {
		o.deletionTimes[uid] = now
	}
}

func (o *objectObserver) jobCreationTime(uid types.UID) (at time.Time, seen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, seen = o.jobTimes[uid]
	return at, seen
}

func (o *objectObserver) deletionTime(uid types.UID) (at time.Time, all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deletionTimes[uid], len(o.remainingObjects[uid]) == 0 && !o.deletionTimes[uid].IsZero()
}
