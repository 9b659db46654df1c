// Package controller reconciles Policies: it reports in the status of each Policy which objects the Policy selects, and whether
// it can be applied. The controllers of Queues and WorkerPools apply it.
package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// brokerCacheSize is the number of default brokers whose problems are remembered.
const brokerCacheSize = 1024

// Reconciler reconciles Policies.
type Reconciler struct {
	kube.Clients

	objects *kube.NamespaceCache[policy.SelectableObjects]
	// brokerProblems are the problems with the Secrets of default brokers, by brokeraccess.Key. A Policy is reconciled whenever
	// replicas change, far more often than its Secrets change.
	brokerProblems *cache.LRUExpireCache
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager) *Reconciler {
	r := &Reconciler{
		Clients:        kube.NewClients(mgr, "policy-controller"),
		brokerProblems: cache.NewLRUExpireCache(brokerCacheSize),
	}
	r.objects = kube.NewNamespaceCache(r.readObjects)
	return r
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies;queues;workerpools,verbs=list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies/status,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile updates the status of one Policy. It has no other effect.
func (r *Reconciler) Reconcile(ctx context.Context, p *v1alpha1.Policy) (ctrl.Result, error) {
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	observation, err := r.observe(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := policy.Decide(observation)
	if err := r.record(ctx, p, &decision); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}
