// Package controller runs a proxy in each namespace in which a SessionRunner allows hosts by name, and reports in the status of
// all SessionRunners whether sessions can use them.
package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/adminkeys"
)

// Options of the controller.
type Options struct {
	// Concurrency is the number of namespaces that are reconciled at the same time.
	Concurrency int
	// Objects is a cache of only the metadata of the objects of proxies.
	Objects ctrlcache.Cache
	// Image has the program yardmaster. If it is empty, no proxy can run.
	Image string
	// KeySecret has the key with which the operator signs the tokens of sessions.
	KeySecret types.NamespacedName
	// AdmissionPolicies are those without which no session starts.
	AdmissionPolicies *kube.AdmissionPolicies
	// Network has the properties of the cluster's network.
	Network sessionrunner.Network
}

// Reconciler reconciles namespaces: the name in a request is empty.
type Reconciler struct {
	kube.Clients

	options Options
	keys    *adminkeys.Store
	// exists remembers which objects of SessionRunners exist, by namespace and sessionrunner.Reference. A rollout of the proxy
	// reconciles all SessionRunners of a namespace many times.
	exists *cache.LRUExpireCache
}

// referenceCacheSize is the number of objects of which is remembered whether they exist.
const referenceCacheSize = 4096

// referenceKey is an object of a SessionRunner.
type referenceKey struct{ namespace, kind, name string }

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	clients := kube.NewClients(mgr, "egressproxy-controller")
	return &Reconciler{
		Clients: clients, options: o, keys: adminkeys.New(clients, o.KeySecret), exists: cache.NewLRUExpireCache(referenceCacheSize),
	}
}

// The Deployment owns the other objects, so only Deployments are deleted.
//
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners;agenticsessions,verbs=list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners/status,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts;persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch

// keyInterval is the time after which a replaced key of the operator reaches the proxies.
const keyInterval = 5 * time.Minute

// refusedInterval is the time after which a refused object is tried again, and a missing one is read again.
const refusedInterval = 30 * time.Second

const fieldOwner = client.FieldOwner("yardmaster-egress-proxy")

// Reconcile applies or deletes the proxy of one namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var list v1alpha1.SessionRunnerList
	if err := r.Client.List(ctx, &list, client.InNamespace(req.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing SessionRunners: %w", err)
	}
	valid := slices.DeleteFunc(slices.Clone(list.Items), func(runner v1alpha1.SessionRunner) bool {
		return !sessionrunner.UsesProxy(&runner) || !runner.DeletionTimestamp.IsZero() || len(sessionrunner.ValidateRunner(&runner)) > 0
	})
	slices.SortFunc(valid, func(a, b v1alpha1.SessionRunner) int { return strings.Compare(a.Name, b.Name) })
	state, address, err := r.reconcileProxy(ctx, req.Namespace, valid)
	if err != nil {
		return ctrl.Result{}, err
	}
	wait := time.Duration(0)
	if len(valid) > 0 {
		wait = keyInterval
		if state.Reason == v1alpha1.ReasonEgressProxyRefused || state.Reason == v1alpha1.ReasonEgressProxyUnavailable {
			wait = refusedInterval
		}
	}
	unprotected, err := r.options.AdmissionPolicies.Problem(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if unprotected != "" {
		wait = decision.Earliest(wait, refusedInterval)
	}
	for i := range list.Items {
		runner := &list.Items[i]
		missing, err := r.findMissing(ctx, runner)
		if err != nil {
			return ctrl.Result{}, err
		}
		switch {
		case len(missing) > 0:
			wait = decision.Earliest(wait, refusedInterval)
		case len(sessionrunner.References(runner)) > 0:
			wait = decision.Earliest(wait, keyInterval)
		}
		before := runner.DeepCopy()
		runner.Status = sessionrunner.Decide(&sessionrunner.Observation{
			Runner: before, Now: r.Clock.Now(), Errors: agenticsession.ValidateRunner(runner), Missing: missing, Unprotected: unprotected, Proxy: state, Address: address,
		})
		if err := client.IgnoreNotFound(kube.UpdateStatus(ctx, r.Client, before, runner)); err != nil {
			return ctrl.Result{}, fmt.Errorf("updating the status of SessionRunner %s: %w", runner.Name, err)
		}
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// findMissing returns the objects that a SessionRunner needs and that do not exist. It is not known of an object that the
// operator may not read.
func (r *Reconciler) findMissing(ctx context.Context, runner *v1alpha1.SessionRunner) ([]sessionrunner.Reference, error) {
	var missing []sessionrunner.Reference
	for _, reference := range sessionrunner.References(runner) {
		key := referenceKey{runner.Namespace, reference.Kind, reference.Name}
		value, known := r.exists.Get(key)
		exists, _ := value.(bool)
		if !known {
			found, err := kube.ReadMetadata(ctx, r.Live, corev1.SchemeGroupVersion.WithKind(reference.Kind), runner.Namespace, reference.Name)
			if err != nil && !apierrors.IsForbidden(err) {
				return nil, err
			}
			exists = found != nil || err != nil
			// The entry expires before the next requeued reconciliation, which then reads the object.
			lifetime := refusedInterval
			if exists {
				lifetime = keyInterval
			}
			r.exists.Add(key, exists, lifetime-time.Second)
		}
		if !exists {
			missing = append(missing, reference)
		}
	}
	return missing, nil
}

// reconcileProxy returns the state of the proxy for these SessionRunners, and its address.
func (r *Reconciler) reconcileProxy(ctx context.Context, namespace string, runners []v1alpha1.SessionRunner) (state decision.State, address string, err error) {
	if len(runners) == 0 {
		return decision.State{}, "", r.deleteUnused(ctx, namespace)
	}
	if r.options.Image == "" {
		return decision.False(v1alpha1.ReasonEgressProxyUnavailable, "the operator has no image for the proxy; set its flag --worker-image"), "", nil
	}
	keys, err := r.keys.Get(ctx)
	if err != nil {
		return decision.State{}, "", err
	}
	if keys == nil {
		return decision.False(v1alpha1.ReasonEgressProxyUnavailable, "the operator has no key to sign tokens of sessions; its log says why"), "", nil
	}
	proxy := &workload.Proxy{Namespace: namespace, Image: r.options.Image, PublicKeys: keys.PublicKey(), Network: &r.options.Network, Runners: runners}
	return r.applyProxy(ctx, proxy)
}

// applyProxy applies all objects of a proxy. Its Deployment is first, because it owns the others.
func (r *Reconciler) applyProxy(ctx context.Context, proxy *workload.Proxy) (state decision.State, address string, err error) {
	refused := func(refusal *decision.Refusal) (decision.State, string, error) {
		return decision.False(v1alpha1.ReasonEgressProxyRefused, refusal.Kind+" "+refusal.Name+": "+refusal.Message), "", nil
	}
	deployment, service := &appsv1.Deployment{}, &corev1.Service{}
	if refusal, err := r.apply(ctx, proxy.Deployment(), deployment); refusal != nil || err != nil {
		if err != nil {
			return decision.State{}, "", err
		}
		return refused(refusal)
	}
	for _, object := range proxy.Dependents(deployment) {
		result := &unstructured.Unstructured{}
		refusal, err := r.apply(ctx, object, result)
		if err != nil {
			return decision.State{}, "", err
		}
		if refusal != nil {
			return refused(refusal)
		}
		if object.GetObjectKind().GroupVersionKind().Kind == "Service" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, service); err != nil {
				return decision.State{}, "", err
			}
		}
	}
	return workload.StateOf(deployment, service), workload.Address(service), nil
}

// apply applies an object, unless another object has its name, and decodes the result.
func (r *Reconciler) apply(ctx context.Context, object decision.Object, result any) (*decision.Refusal, error) {
	u, err := kube.ApplyConfiguration(object)
	if err != nil {
		return nil, err
	}
	existing, err := kube.ReadMetadata(ctx, r.Live, u.GroupVersionKind(), u.GetNamespace(), u.GetName())
	if err != nil {
		return nil, err
	}
	if refusal, err := r.ApplyOwned(ctx, u, existing, workload.IsOwn, "egress proxy", fieldOwner); refusal != nil || err != nil {
		return refusal, err
	}
	if into, is := result.(*unstructured.Unstructured); is {
		*into = *u
		return nil, nil
	}
	return nil, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, result)
}

// deleteUnused deletes the proxy when no SessionRunner allows hosts, and no running session may still use the proxy. The
// garbage collector deletes the objects that the Deployment owns.
func (r *Reconciler) deleteUnused(ctx context.Context, namespace string) error {
	deployment, err := kube.ReadMetadata(ctx, r.options.Objects, deploymentKind, namespace, workload.Name)
	if err != nil || deployment == nil || !workload.IsOwn(deployment) || !deployment.DeletionTimestamp.IsZero() {
		return err
	}
	var sessions v1alpha1.AgenticSessionList
	if err := r.Client.List(ctx, &sessions, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing AgenticSessions: %w", err)
	}
	for i := range sessions.Items {
		if sessions.Items[i].Status.Attempt.JobName != "" {
			return nil // the end of its Job is an event
		}
	}
	return kube.DeleteVersion(ctx, r.Client, deployment, metav1.DeletePropagationBackground)
}
