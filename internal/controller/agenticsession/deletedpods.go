package agenticsession

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// deletedPods remembers the last Pod of each session that has gone, as it was last seen. A Pod
// can end and go before a pass looks at it, and what its runner left goes with it.
type deletedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]*corev1.Pod
}

func newDeletedPods() *deletedPods { return &deletedPods{pods: map[types.NamespacedName]*corev1.Pod{}} }

// eventHandler has the session of a Pod reconciled, and remembers the Pod if it is gone.
func (d *deletedPods) eventHandler() handler.EventHandler {
	changed := handler.EnqueueRequestsFromMapFunc(childToSession)
	return handler.Funcs{
		CreateFunc: changed.Create,
		UpdateFunc: changed.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			for _, request := range childToSession(ctx, e.Object) {
				d.add(request.NamespacedName, e.Object)
			}
			changed.Delete(ctx, e, queue)
		},
	}
}

func (d *deletedPods) add(key types.NamespacedName, object client.Object) {
	pod, is := object.(*corev1.Pod)
	if !is {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods[key] = pod
}

// withDeletedPod adds the session's Pod that has gone to those that are there.
func (d *deletedPods) withDeletedPod(pods []corev1.Pod, s *v1alpha1.AgenticSession) []corev1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone, known := d.pods[client.ObjectKeyFromObject(s)]
	if !known || gone.Labels[session.LabelSessionUID] != string(s.UID) ||
		slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.UID == gone.UID }) {
		return pods
	}
	return append(pods, *gone)
}

// settle forgets what is of no use to a session without an open attempt.
func (d *deletedPods) settle(s *v1alpha1.AgenticSession) {
	if s.Status.Job == "" {
		d.forget(client.ObjectKeyFromObject(s))
	}
}

func (d *deletedPods) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pods, key)
}
