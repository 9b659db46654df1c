package prepull

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
)

// NewCache returns a cache of the DaemonSets in these namespaces, or in all namespaces if the map is empty.
func NewCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchLabels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: agenticsession.LabelRunnerUID, Operator: metav1.LabelSelectorOpExists}},
	})
	if err != nil { // it is constant
		selector = labels.Nothing()
	}
	daemonSets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		NewInformer:          informer.NewInformer,
		DefaultNamespaces:    namespaces,
		DefaultLabelSelector: selector,
		DefaultTransform:     kube.TrimObject,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the cache of DaemonSets that pull images: %w", err)
	}
	return daemonSets, mgr.Add(daemonSets)
}

// SetupWithManager adds the controller to the manager. The status of a DaemonSet changes nothing.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	owner := handler.TypedEnqueueRequestForOwner[client.Object](mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.SessionRunner{}, handler.OnlyControllerOwner())
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("prepull").
		For(&v1alpha1.SessionRunner{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](r.options.DaemonSets, &appsv1.DaemonSet{}, owner, changed)).
		WithOptions(kube.ControllerOptions(r.options.Concurrency)).
		Complete(kube.RequeueOnConflict(reconcile.AsReconciler(mgr.GetClient(), r)))
}
