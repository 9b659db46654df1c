// Package controller executes the decisions of package workerpool: it observes a pool, its revisions, its workers and
// their queues, records the decision in the status, and acts. Workers and queues are observed in the background,
// because they may not answer.
//
// A pool with workers is reconciled every two seconds, because neither brokers nor workers send
// notifications when their stats change. A pool without workers is reconciled when its broker
// announces the first message.
//
// Before a revision shrinks, its Pods are listed from the API server, to verify that only removable workers stop.
package controller

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/adminkeys"
	"github.com/yardmaster/yardmaster/internal/kube/bulkhead"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
)

const secretKeyCacheSize = 1024

// SourceReader reads the stats of pools that have a source instead of queues.
type SourceReader interface {
	ReadBacklog(ctx context.Context, namespace string, source *v1alpha1.Source) (*workerpool.QueueStats, error)
}

// Options of the controller.
type Options struct {
	// Concurrency is the number of pools that are reconciled at the same time.
	Concurrency int
	// Image of the operator, for drain mode Sidecar. If it is empty, this mode is refused.
	Image string
	// Address returns the address of a worker's admin API; nil means its Pod IP.
	Address func(worker *corev1.Pod) string
	// Sources reads sources. If it is nil, pools with a source are refused.
	Sources SourceReader
	// AdminSecret has the key with which the operator signs requests to workers. If its name is
	// empty, requests are not signed, and workers have no protection from other clients.
	AdminSecret types.NamespacedName
	// OperatorNamespace has the operator's Pods, which NetworkPolicies of pools allow. If it is empty, pools get no
	// NetworkPolicy.
	OperatorNamespace string
}

// Reconciler reconciles WorkerPools.
type Reconciler struct {
	kube.Clients

	brokers *brokerconn.Manager
	workers *workerclient.Client
	keys    *adminkeys.Store
	options Options

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
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Decide implements kube.Kind.
func (*Reconciler) Decide(observed *Observed) workerpool.Decision {
	return workerpool.Decide(observed.Observation)
}

// Answer implements kube.Kind. Decisions about WorkerPools have no questions.
func (*Reconciler) Answer(context.Context, *Observed, *workerpool.Decision) (bool, error) {
	return false, nil
}

// Lock implements kube.Locker. Pools of a namespace that share a replica budget are decided one after another, because
// each decision depends on the recorded decisions about the other pools.
func (r *Reconciler) Lock(ctx context.Context, observed *Observed) (unlock func(), err error) {
	if len(observed.Policies.TotalLimits()) == 0 {
		return func() {}, nil
	}
	stored, _ := r.budgetLocks.LoadOrStore(observed.Pool.Namespace, &sync.Mutex{})
	lock := stored.(*sync.Mutex) //nolint:forcetypeassert // only mutexes are stored
	lock.Lock()
	var pools v1alpha1.WorkerPoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(observed.Pool.Namespace)); err != nil {
		lock.Unlock()
		return nil, fmt.Errorf("listing WorkerPools: %w", err)
	}
	observed.NamespacePools = nil
	for i := range pools.Items {
		observed.NamespacePools = append(observed.NamespacePools, *r.writeCache.Newest(&pools.Items[i]))
	}
	return lock.Unlock, nil
}

// Finish implements kube.Kind. It requests a notification of the first message if the pool needs no workers: while
// messages wait, notifications would trigger endless reconciliations. Drain requests are sent before the next decision,
// which is therefore made at once, unless the requests are repeated or their workers do not answer.
func (r *Reconciler) Finish(wp *v1alpha1.WorkerPool, observed *Observed, decision *workerpool.Decision) time.Duration {
	queues := observed.queues
	r.memory.Update(wp, func(memory *poolMemory) {
		memory.refusal, memory.drainRequests = observed.Refusal, decision.DrainRequests
		if queues != nil {
			memory.broker, memory.queues = queues.conn.Key, queues.names
		}
	})
	mayHaveMessages := observed.Stats == nil || observed.Stats.Backlog > 0
	if queues != nil && wp.Spec.Autoscaling != nil && decision.Status.Desired <= 0 && !mayHaveMessages {
		for i := range queues.all {
			if q := &queues.all[i].config; !q.Paused {
				queues.conn.NotifyWhenReady(q.Name)
			}
		}
	}
	isUrgent := func(request workerpool.DrainRequest) bool {
		answers := func(w workerpool.Worker) bool { return w.Name == request.Worker && w.Stats != nil }
		return !slices.Contains(observed.lastDrainRequests, request) && slices.ContainsFunc(observed.Workers, answers)
	}
	if slices.ContainsFunc(decision.DrainRequests, isUrgent) {
		return time.Nanosecond
	}
	return decision.RequeueAfter
}

// Forget implements kube.Kind.
func (r *Reconciler) Forget(_ context.Context, key types.NamespacedName) error {
	r.memory.Forget(key)
	r.peers.Forget(key)
	forgetMetrics(key)
	return nil
}
