// Package controller carries out the decisions of package sequentialjob: it observes a
// SequentialJob and its Jobs, records the decision in the status, and acts.
//
// It acts only on what it has recorded: before it creates or deletes anything, it has written or
// re-read exactly the version of the object that the decision is based on.
package controller

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Routine events of a namespace are limited to this rate per second: each costs the API server about as much as
// the Job of a step. Omitted events are counted. Warnings are never omitted.
const (
	routineEventRate  = 2
	routineEventBurst = 20
)

// Statuses that only say that a step runs are limited to this rate per second in a namespace: a control plane that is
// busy, and therefore reports Pods late, would be made busier by them.
const (
	runningReportRate  = 5
	runningReportBurst = 50
)

// Options configure a Reconciler.
type Options struct {
	// Concurrency is the maximum number of concurrent reconciliations.
	Concurrency int
	// Pods is the cache that NewCache returns.
	Pods cache.Cache
	// ArchiveImage is the image of Jobs that archive logs: the operator's own. If it is empty, no logs are archived.
	ArchiveImage string
}

// Reconciler reconciles SequentialJobs.
type Reconciler struct {
	kube.Clients

	options Options

	policies       *kube.NamespaceCache[policy.Set]
	routineEvents  *kube.NamespaceLimiter
	runningReports *kube.NamespaceLimiter
	writeCache     *kube.WriteCache[*v1alpha1.SequentialJob]
	createdJobs    *createdJobs
	// stepEnds is when the last Job of each SequentialJob was observed to end.
	stepEnds *kube.Store[time.Time]
	// failures are the failures since the last successful reconciliation of each SequentialJob.
	failures *kube.Store[failure]
	// accepted has the fingerprints of what the API server accepted in a dry run.
	accepted   *utilcache.LRUExpireCache
	eventLists *rate.Limiter
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, options Options) *Reconciler {
	return &Reconciler{
		options:        options,
		Clients:        kube.NewClients(mgr, "sequentialjob-controller"),
		policies:       kube.NewPolicyCache(mgr.GetClient()),
		routineEvents:  kube.NewNamespaceLimiter(routineEventRate, routineEventBurst),
		runningReports: kube.NewNamespaceLimiter(runningReportRate, runningReportBurst),
		writeCache:     kube.NewWriteCache[*v1alpha1.SequentialJob](),
		createdJobs:    newCreatedJobs(),
		stepEnds:       kube.NewStore[time.Time](),
		failures:       kube.NewStore[failure](),
		eventLists:     rate.NewLimiter(eventListRate, eventListBurst),
		accepted:       utilcache.NewLRUExpireCache(maxAccepted),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies,verbs=list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;list;patch

// Reconcile makes one decision about a SequentialJob and carries it out.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sj, err := r.read(ctx, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.writeCache.Forget(req.NamespacedName)
		r.createdJobs.Forget(req.NamespacedName)
		r.stepEnds.Forget(req.NamespacedName)
		r.failures.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !sequentialjob.IsManaged(sj) {
		return ctrl.Result{}, nil
	}
	result, err := r.reconcileOnce(ctx, sj)
	if err != nil {
		err = kube.RemoveFinalizerIfTerminating(ctx, r.Live, r.Client, sj, v1alpha1.SequentialJobFinalizer, err)
	}
	if err != nil {
		r.recordFailure(ctx, sj, err)
		return ctrl.Result{}, err
	}
	if r.clearFailure(sj) {
		result.RequeueAfter = time.Millisecond // clears the condition
	}
	return result, nil
}

// reconcileOnce makes one decision, and another one if the API server refuses what the first one creates.
func (r *Reconciler) reconcileOnce(ctx context.Context, sj *v1alpha1.SequentialJob) (ctrl.Result, error) {
	observation, err := r.observe(ctx, sj)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision, err := r.decide(ctx, &observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.record(ctx, sj, &decision); err != nil {
		return ctrl.Result{}, err
	}
	refusal, err := r.act(ctx, sj, &decision, observation.SequentialJob.ResourceVersion)
	if err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		observation.SequentialJob, observation.Refusal = sj.DeepCopy(), refusal
		if decision, err = r.decide(ctx, &observation); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.record(ctx, sj, &decision); err != nil {
			return ctrl.Result{}, err
		}
		if decision.CreateJob == nil && decision.RequeueAfter == 0 {
			decision.RequeueAfter = time.Millisecond // the step failed; start the next one
		}
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// decide answers the questions of the core until it has no more.
func (r *Reconciler) decide(ctx context.Context, observation *sequentialjob.Observation) (sequentialjob.Decision, error) {
	for {
		decision := sequentialjob.Decide(*observation)
		if decision.Question == nil {
			return decision, nil
		}
		if err := r.answer(ctx, observation, decision.Question); err != nil {
			return sequentialjob.Decision{}, err
		}
	}
}
