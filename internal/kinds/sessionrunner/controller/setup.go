package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
)

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// NewCache returns a cache of the metadata of the objects of proxies in these namespaces, or in all namespaces if the map is empty.
func NewCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	objects, err := informer.NewCache(mgr, "the objects of egress proxies", cache.Options{
		DefaultNamespaces:    namespaces,
		DefaultLabelSelector: labels.SelectorFromSet(workload.Selector().MatchLabels),
		DefaultTransform:     kube.TrimObject,
	})
	if err != nil {
		return nil, err
	}
	return objects, mgr.Add(objects)
}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("egressproxy").
		Watches(&v1alpha1.SessionRunner{}, handler.EnqueueRequestsFromMapFunc(toNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.AgenticSession{}, handler.EnqueueRequestsFromMapFunc(r.toUnusedProxy), builder.WithPredicates(hasEnded))
	for _, kind := range []schema.GroupVersionKind{
		deploymentKind, corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
	} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		b = b.WatchesRawSource(source.Kind[client.Object](r.options.Objects, object, handler.EnqueueRequestsFromMapFunc(toNamespace)))
	}
	b = b.WatchesRawSource(source.Channel(r.options.AdmissionPolicies.Changes, handler.EnqueueRequestsFromMapFunc(r.allNamespaces)))
	return b.WithOptions(kube.ControllerOptions(r.options.Concurrency)).Complete(kube.RequeueOnConflict(r))
}

func toNamespace(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace()}}}
}

// allNamespaces returns all namespaces with SessionRunners.
func (r *Reconciler) allNamespaces(ctx context.Context, _ client.Object) []reconcile.Request {
	var runners v1alpha1.SessionRunnerList
	if err := r.Client.List(ctx, &runners, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list SessionRunners, whose status does not show a change of the admission policies")
		return nil
	}
	requests := sets.New[reconcile.Request]()
	for i := range runners.Items {
		requests.Insert(toNamespace(ctx, &runners.Items[i])...)
	}
	return requests.UnsortedList()
}

// toUnusedProxy maps an ended session to its namespace if the proxy there may be unused.
func (r *Reconciler) toUnusedProxy(ctx context.Context, object client.Object) []reconcile.Request {
	deployment, err := kube.ReadMetadata(ctx, r.options.Objects, deploymentKind, object.GetNamespace(), workload.Name)
	if err != nil || deployment == nil {
		return nil
	}
	var runners v1alpha1.SessionRunnerList
	if err := r.Client.List(ctx, &runners, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return toNamespace(ctx, object)
	}
	for i := range runners.Items {
		if sessionrunner.UsesProxy(&runners.Items[i]) {
			return nil
		}
	}
	return toNamespace(ctx, object)
}

// hasEnded selects deleted sessions, and sessions whose Job has ended.
var hasEnded = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, oldOK := e.ObjectOld.(*v1alpha1.AgenticSession)
		after, newOK := e.ObjectNew.(*v1alpha1.AgenticSession)
		return oldOK && newOK && before.Status.Attempt.JobName != "" && after.Status.Attempt.JobName == ""
	},
}
