package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var policiesGauge = metric.NewSum("yardmaster_policy_policies",
	"Policies of a namespace by the status and reason of their condition Ready.", "namespace", "ready", "reason")

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	addPolicies := func(sums metric.Sums, list *v1alpha1.PolicyList) {
		for i := range list.Items {
			sums.AddCondition(policiesGauge, list.Items[i].Status.Conditions, v1alpha1.ConditionReady, list.Items[i].Namespace)
		}
	}
	if err := metric.Register(metric.NewSumCollector(mgr.GetCache(), &v1alpha1.PolicyList{}, addPolicies, policiesGauge)); err != nil {
		return err
	}
	// All Policies of the namespace, because other Policies may have selected an object before its labels changed.
	policiesOfNamespace := func(ctx context.Context, namespace string) []reconcile.Request {
		return kube.RequestsForList(ctx, r.Client, &v1alpha1.PolicyList{}, client.InNamespace(namespace))
	}
	objects := kube.NewNamespaceHandler(r.objects.Invalidate, policiesOfNamespace)
	return ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&v1alpha1.Policy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Queue{}, objects,
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.WorkerPool{}, objects,
			builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, replicasChanged))).
		WithOptions(kube.ControllerOptions(concurrency)).
		Complete(kube.RequeueOnConflict(reconcile.AsReconciler(mgr.GetClient(), r)))
}

// replicasChanged passes a WorkerPool whose replicas have changed. The other fields of its status, which change every few
// seconds, do not matter to a Policy.
var replicasChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return statusReplicas(e.ObjectOld) != statusReplicas(e.ObjectNew) },
}

func statusReplicas(object client.Object) int32 {
	wp, _ := object.(*v1alpha1.WorkerPool)
	if wp == nil {
		return 0
	}
	return wp.Status.Replicas
}
