// Package controller executes the decisions of package sequentialjob: it observes a SequentialJob and its Jobs, records
// the decision in the status, and acts.
//
// Before it creates or deletes anything, it has recorded the decision, or has read again that the version on which the
// decision is based is current.
package controller

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Routine events of a namespace are limited to this rate per second, because each costs the API server about as much as
// the Job of a step. Omitted events are counted.
const (
	routineEventRate  = 2
	routineEventBurst = 20
)

// Status writes that only report progress which the Jobs show are limited to this rate per second in a namespace, because they would add
// to the load of a busy control plane.
const (
	progressWriteRate  = 1
	progressWriteBurst = 20
)

// Options configure a Reconciler.
type Options struct {
	// Concurrency is the maximum number of concurrent reconciliations.
	Concurrency int
	// Pods is the cache that NewCache returns.
	Pods cache.Cache
	// ApprovalPolicies are the admission policies without which no approval counts.
	ApprovalPolicies *kube.AdmissionPolicies
	// ArchiveImage is the operator's image, for Jobs that archive logs. If it is empty, no logs are archived.
	ArchiveImage string
}

// Reconciler reconciles SequentialJobs.
type Reconciler struct {
	kube.Clients

	options Options

	policies       *kube.NamespaceCache[policy.Set]
	routineEvents  *kube.NamespaceLimiter
	progressWrites *kube.NamespaceLimiter
	writeCache     *kube.WriteCache[*v1alpha1.SequentialJob]
	createdJobs    *createdJobs
	evidence       *evidenceStore
	// watchedJobs is the Job of each SequentialJob of which this process has observed all Pods.
	watchedJobs *kube.Store[types.UID]
	// endedJobs are the deleted Jobs of each SequentialJob that had ended, by UID: with ttlSecondsAfterFinished 0, a Job may be
	// deleted before its end is observed.
	endedJobs *kube.Store[map[types.UID]*batchv1.Job]
	// stepEnds is when the last Job of each SequentialJob was observed to end.
	stepEnds *kube.Store[time.Time]
	// stored is the version of each unfinished SequentialJob that this process has stored since it knows all of its Jobs.
	stored *kube.Store[string]
	// failures of each SequentialJob since its last successful reconciliation.
	failures *kube.Store[failure]
	// accepted has the fingerprints that the API server accepted in a dry run.
	accepted *utilcache.LRUExpireCache
	warnings *warningReader
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, options Options) *Reconciler {
	clients := kube.NewClients(mgr, "sequentialjob-controller")
	return &Reconciler{
		options:        options,
		Clients:        clients,
		policies:       kube.NewPolicyCache(mgr.GetClient()),
		routineEvents:  kube.NewNamespaceLimiter(routineEventRate, routineEventBurst),
		progressWrites: kube.NewNamespaceLimiter(progressWriteRate, progressWriteBurst),
		writeCache:     kube.NewWriteCache[*v1alpha1.SequentialJob](),
		createdJobs:    newCreatedJobs(),
		evidence:       newEvidenceStore(),
		watchedJobs:    kube.NewStore[types.UID](),
		endedJobs:      kube.NewStore[map[types.UID]*batchv1.Job](),
		stepEnds:       kube.NewStore[time.Time](),
		stored:         kube.NewStore[string](),
		failures:       kube.NewStore[failure](),
		accepted:       utilcache.NewLRUExpireCache(maxAccepted),
		warnings:       newWarningReader(clients.Live),
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

// Decide implements kube.Kind.
func (*Reconciler) Decide(observation *sequentialjob.Observation) sequentialjob.Decision {
	return sequentialjob.Decide(*observation)
}

// Finish implements kube.Kind.
func (r *Reconciler) Finish(sj *v1alpha1.SequentialJob, observation *sequentialjob.Observation, decision *sequentialjob.Decision) time.Duration {
	failed, _ := r.failures.Get(sj)
	r.failures.Delete(sj)
	switch {
	case failed.reported != "":
		return time.Millisecond // clears the condition
	case observation.Refusal != nil && decision.CreateJob == nil && decision.RequeueAfter == 0:
		return time.Millisecond // the step failed; start the next step
	}
	return decision.RequeueAfter
}

// Forget implements kube.Kind.
func (r *Reconciler) Forget(_ context.Context, key types.NamespacedName) error {
	r.createdJobs.Forget(key)
	r.watchedJobs.Forget(key)
	r.endedJobs.Forget(key)
	r.stepEnds.Forget(key)
	r.stored.Forget(key)
	r.failures.Forget(key)
	return nil
}
