// Package controller reconciles WorkerPools: it observes a pool, its revisions, its workers and
// their queues, records the decision of package pool in the status, and acts on it. Workers and
// queues are observed outside the reconciliation, because they may not answer.
//
// A pool with workers is reconciled every two seconds, because neither brokers nor workers send
// notifications when their stats change. A pool without workers is reconciled when its broker
// announces the first message.
//
// Before a revision shrinks, the reconciler lists its Pods from the API server, to check that
// only removable workers stop.
package controller

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/adminkeys"
	"github.com/yardmaster/yardmaster/internal/kube/bulkhead"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
)

// secretKeyCacheSize is the number of Secrets whose keys are remembered.
const secretKeyCacheSize = 1024

// SourceReader reads the stats of pools that have a source instead of queues.
type SourceReader interface {
	ReadBacklog(ctx context.Context, namespace string, source *v1alpha1.Source) (*workerpool.QueueStats, error)
}

// Options of the controller.
type Options struct {
	// Concurrency is the number of pools that are reconciled at the same time.
	Concurrency int
	// Image of the operator, for drain mode Sidecar. If it is empty, that mode is refused.
	Image string
	// Address returns the address of a worker's admin API; nil means its Pod IP.
	Address func(worker *corev1.Pod) string
	// Sources reads sources. If it is nil, pools with a source are refused.
	Sources SourceReader
	// AdminSecret has the key with which the operator signs requests to workers. If its name is
	// empty, requests are not signed, and workers have no protection from other clients.
	AdminSecret types.NamespacedName
	// OperatorNamespace has the operator's Pods, which NetworkPolicies of pools admit. If it is
	// empty, pools get none.
	OperatorNamespace string
	// PodMonitors is the time between two checks for the PodMonitor kind; 0 means two minutes.
	PodMonitors time.Duration
}

// Reconciler reconciles WorkerPools.
type Reconciler struct {
	kube.Clients

	brokers *brokerconn.Manager
	workers *workerclient.Client
	keys    *adminkeys.Store
	options Options
	// podMonitors is true while the cluster has the PodMonitor kind.
	podMonitors atomic.Bool

	peers *bulkhead.Observer[*peerObservation]

	policies    *kube.NamespaceCache[policy.Set]
	writeCache  *kube.WriteCache[*v1alpha1.WorkerPool]
	memory      *kube.Store[poolMemory]
	budgetLocks sync.Map              // of *sync.Mutex, by namespace
	secretKeys  *cache.LRUExpireCache // secretKeys by the name of the Secret
}

// New returns a Reconciler that uses the manager's clients and the connections of brokers.
func New(mgr ctrl.Manager, brokers *brokerconn.Manager, o Options) *Reconciler {
	if o.Address == nil {
		o.Address = podAddress
	}
	if o.PodMonitors == 0 {
		o.PodMonitors = 2 * time.Minute
	}
	clients := kube.NewClients(mgr, "workerpool-controller")
	return &Reconciler{
		Clients:    clients,
		keys:       adminkeys.New(clients, o.AdminSecret),
		brokers:    brokers,
		policies:   kube.NewPolicyCache(mgr.GetClient()),
		workers:    workerclient.New(),
		options:    o,
		peers:      bulkhead.NewObserver[*peerObservation](bulkhead.DefaultLimits()),
		writeCache: kube.NewWriteCache[*v1alpha1.WorkerPool](),
		memory:     kube.NewStore[poolMemory](),
		secretKeys: cache.NewLRUExpireCache(secretKeyCacheSize),
	}
}

func podAddress(worker *corev1.Pod) string {
	return net.JoinHostPort(worker.Status.PodIP, strconv.Itoa(workerpool.AdminPort))
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools,verbs=list;watch;patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues;policies,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=podmonitors,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one WorkerPool closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	wp := &v1alpha1.WorkerPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, wp); err != nil {
		if apierrors.IsNotFound(err) {
			r.writeCache.Forget(req.NamespacedName)
			r.memory.Forget(req.NamespacedName)
			r.peers.Forget(req.NamespacedName)
			forgetMetrics(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wp = r.writeCache.Newest(wp)
	if !wp.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(wp, v1alpha1.WorkerPoolFinalizer) {
		return ctrl.Result{}, nil // the garbage collector deletes its objects
	}
	result, err := r.reconcileOnce(ctx, wp)
	if err != nil {
		err = kube.RemoveFinalizerIfTerminating(ctx, r.Live, r.Client, wp, v1alpha1.WorkerPoolFinalizer, err)
	}
	return result, err
}

func (r *Reconciler) reconcileOnce(ctx context.Context, wp *v1alpha1.WorkerPool) (ctrl.Result, error) {
	observed, err := r.observe(ctx, wp)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.observePeers(ctx, observed); err != nil {
		return ctrl.Result{}, err
	}
	var decision workerpool.Decision
	err = r.withBudgetLock(observed, func() error {
		if err := r.observeBudget(ctx, observed); err != nil {
			return err
		}
		decision = workerpool.Decide(observed.Observation)
		return r.record(ctx, wp, &decision)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	refusal, err := r.act(ctx, wp, observed, &decision)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ptr.Equal(observed.Refusal, refusal) {
		observed.Pool, observed.Memory, observed.Refusal = wp.DeepCopy(), decision.Memory, refusal
		decision = workerpool.Decide(observed.Observation)
		if err := r.record(ctx, wp, &decision); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.remember(wp, observed, &decision)
	r.notifyOnFirstMessage(wp, observed, &decision) //nolint:contextcheck // the wait outlives this reconciliation
	return ctrl.Result{RequeueAfter: requeueAfter(observed, &decision)}, nil
}

// requeueAfter returns the time until the next decision. Drain requests are sent before that, and so
// at once, unless they are repeated or their worker does not answer.
func requeueAfter(observed *observation, decision *workerpool.Decision) time.Duration {
	isUrgent := func(request workerpool.DrainRequest) bool {
		return observed.answers(request) && !slices.Contains(observed.lastDrainRequests, request)
	}
	if slices.ContainsFunc(decision.DrainRequests, isUrgent) {
		return time.Nanosecond
	}
	return decision.RequeueAfter
}

// withBudgetLock calls do. Pools of a namespace that share a replica budget do so one after
// another: each must see the decisions that the others have recorded.
func (r *Reconciler) withBudgetLock(observed *observation, do func() error) error {
	if len(observed.Policies.TotalLimits()) > 0 {
		stored, _ := r.budgetLocks.LoadOrStore(observed.Pool.Namespace, &sync.Mutex{})
		lock := stored.(*sync.Mutex) //nolint:forcetypeassert // only mutexes are stored
		lock.Lock()
		defer lock.Unlock()
	}
	return do()
}
