// Package workerpool carries out what package pool decides: it observes a WorkerPool, its
// revisions, its workers and their queues, records the decision in the status, and acts.
//
// A pool that has workers is looked at every two seconds: what its queues hold and its
// workers do, nobody tells. One that sleeps is not looked at; its broker tells of the first
// message.
//
// It refuses to have a revision shrink before it has seen, live, which workers that takes.
package workerpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/internal/workerclient"
)

// figuresEvery is how often a status is written in which nothing but figures has changed.
const figuresEvery = 5 * time.Second

// refusalWait is when an object that the API server refused is tried again.
const refusalWait = 30 * time.Second

// knownSecrets is of how many Secrets it is remembered which keys they have.
const knownSecrets = 1024

// Sources tell what waits for pools that have no Queue.
type Sources interface {
	ReadBacklog(ctx context.Context, namespace string, source *v1alpha1.Source) (*pool.QueueStats, error)
}

// Options of the controller.
type Options struct {
	// Concurrency is how many pools are reconciled at once.
	Concurrency int
	// Image of the operator, for drain mode Sidecar; empty: that mode is refused.
	Image string
	// Address of a worker's admin API; nil: its Pod's.
	Address func(worker *corev1.Pod) string
	// Sources; nil: pools with a source are refused.
	Sources Sources
	// PodMonitors is the time between two looks whether the cluster has that kind now; 0: two
	// minutes.
	PodMonitors time.Duration
}

// Reconciler reconciles WorkerPools.
type Reconciler struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	clock    clock.PassiveClock
	brokers  *brokerconn.Manager
	workers  *workerclient.Client
	options  Options
	// podMonitors tells whether the cluster has that kind.
	podMonitors atomic.Bool

	writeCache *kube.WriteCache[*v1alpha1.WorkerPool]
	known      *known
	budgets    *budgets
	secrets    *cache.LRUExpireCache // by name: the keys that Secrets have
}

// New returns a Reconciler that works through the manager's clients, and reaches brokers
// through the brokers.
func New(mgr ctrl.Manager, brokers *brokerconn.Manager, o Options) *Reconciler {
	if o.Address == nil {
		o.Address = address
	}
	if o.PodMonitors == 0 {
		o.PodMonitors = 2 * time.Minute
	}
	return &Reconciler{
		client:     mgr.GetClient(),
		live:       mgr.GetAPIReader(),
		recorder:   mgr.GetEventRecorder("workerpool-controller"),
		clock:      clock.RealClock{},
		brokers:    brokers,
		workers:    workerclient.New(),
		options:    o,
		writeCache: kube.NewWriteCache[*v1alpha1.WorkerPool](),
		known:      newKnown(),
		budgets:    newBudgets(),
		secrets:    cache.NewLRUExpireCache(knownSecrets),
	}
}

// address of a worker: its Pod's.
func address(worker *corev1.Pod) string {
	return net.JoinHostPort(worker.Status.PodIP, strconv.Itoa(pool.AdminPort))
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools/status,verbs=patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues;policies,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=podmonitors,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes one WorkerPool as far as it goes now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	wp := &v1alpha1.WorkerPool{}
	if err := r.client.Get(ctx, req.NamespacedName, wp); err != nil {
		if apierrors.IsNotFound(err) { // a failed read tells nothing
			r.writeCache.Forget(req.NamespacedName)
			r.known.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wp = r.writeCache.Newest(wp)
	if !wp.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(wp, v1alpha1.WorkerPoolFinalizer) {
		return ctrl.Result{}, nil // the garbage collector removes the rest
	}
	result, err := r.pass(ctx, wp)
	if err != nil {
		err = kube.RemoveFinalizerIfTerminating(ctx, r.live, r.client, wp, v1alpha1.WorkerPoolFinalizer, err)
	}
	return result, err
}

// pass is one look at a pool that is there.
func (r *Reconciler) pass(ctx context.Context, wp *v1alpha1.WorkerPool) (ctrl.Result, error) {
	seen, err := r.observe(ctx, wp)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := r.decide(ctx, wp, seen)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.act(ctx, wp, seen, &plan)
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		return r.recordRefusal(ctx, wp, seen, refused)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.sleep(wp, seen, &plan) //nolint:contextcheck // the wait for a message outlives the pass
	return ctrl.Result{RequeueAfter: plan.RequeueAfter}, nil
}

// decide asks the core, and records what it says. Pools that share a budget do so one
// after another, each knowing what the others before it have got.
func (r *Reconciler) decide(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight) (pool.Decision, error) {
	if seen.shares() {
		defer r.budgets.lock(wp.Namespace)()
		if err := r.claim(ctx, wp, seen); err != nil {
			return pool.Decision{}, err
		}
	}
	plan := pool.Decide(seen.in)
	if err := r.record(ctx, wp, &plan); err != nil {
		return pool.Decision{}, err
	}
	r.known.remember(wp, plan.Memory)
	return plan, nil
}

// record stores the plan's status, then tells of it. Figures alone are stored now and
// then.
func (r *Reconciler) record(ctx context.Context, wp *v1alpha1.WorkerPool, plan *pool.Decision) error {
	if !wp.DeletionTimestamp.IsZero() && !plan.KeepFinalizer {
		return nil // it goes now; and where its namespace does, permission to write may go first
	}
	if plan.StatusDeferrable && r.clock.Since(wp.Status.LastDecision.Time.Time) < figuresEvery {
		return nil
	}
	before, after := wp.DeepCopy(), wp.DeepCopy()
	after.Status = plan.Status
	if err := kube.PatchStatus(ctx, r.client, before, after); err != nil {
		return fmt.Errorf("patching status: %w", err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		*wp = *after
		r.writeCache.Record(wp)
	}
	for _, event := range plan.Events {
		r.recorder.Eventf(wp, nil, event.Type, event.Reason, event.Action, "%s", event.Message)
	}
	count(&before.Status, &wp.Status)
	return nil
}

// recordRefusal records what the API server refused. What there is stays as it is.
func (r *Reconciler) recordRefusal(ctx context.Context, wp *v1alpha1.WorkerPool, seen *sight, refused *refusedError) (ctrl.Result, error) {
	seen.in.Pool = wp.DeepCopy()
	seen.in.Problem = &pool.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: refused.Error()}
	plan := pool.Decide(seen.in)
	if err := r.record(ctx, wp, &plan); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: refusalWait}, nil
}
