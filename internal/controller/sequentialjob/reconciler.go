// Package sequentialjob carries out what package sequence decides: it observes a
// SequentialJob and its Jobs, records the decision in the status, and acts.
//
// It refuses to act on what it could not record: every pass that makes or deletes
// something has first written over, or read again, the very version it decided on.
package sequentialjob

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// Writes of a status that only tells that a step is on its way are held to this many a
// second, and deferred by deferral when there are more, so that under load the API
// server's time goes to starting steps.
const (
	progressWrites = 1
	progressBurst  = 30
	deferral       = 10 * time.Second
)

// Events of a step's ordinary course are held to this many a second, as client-go's older
// recorder held those of one object; more are left out, and counted. Warnings never are.
const (
	routineEvents = 10
	routineBurst  = 100
)

// Reconciler reconciles SequentialJobs.
type Reconciler struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	clock    clock.PassiveClock
	progress *rate.Limiter
	routine  *rate.Limiter

	writeCache  *kube.WriteCache[*v1alpha1.SequentialJob]
	created     *createdJobs
	transitions *transitions
	tried       *cache.LRUExpireCache // by shape: Jobs that the API server would take
}

// New returns a Reconciler that works through the manager's clients.
func New(mgr ctrl.Manager) *Reconciler {
	return &Reconciler{
		client:      mgr.GetClient(),
		live:        mgr.GetAPIReader(),
		recorder:    mgr.GetEventRecorder("sequentialjob-controller"),
		clock:       clock.RealClock{},
		progress:    rate.NewLimiter(progressWrites, progressBurst),
		routine:     rate.NewLimiter(routineEvents, routineBurst),
		writeCache:  kube.NewWriteCache[*v1alpha1.SequentialJob](),
		created:     newCreatedJobs(),
		transitions: newTransitions(),
		tried:       cache.NewLRUExpireCache(triedShapes),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs/status,verbs=patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;update
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes one SequentialJob as far as it goes now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sj := &v1alpha1.SequentialJob{}
	if err := r.client.Get(ctx, req.NamespacedName, sj); err != nil {
		if apierrors.IsNotFound(err) { // a failed read tells nothing
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !sequence.Manages(sj) {
		return ctrl.Result{}, nil
	}
	sj = r.writeCache.Newest(sj)
	result, err := r.pass(ctx, sj)
	if err != nil {
		err = kube.RemoveFinalizerIfTerminating(ctx, r.live, r.client, sj, v1alpha1.SequentialJobFinalizer, err)
	}
	return result, err
}

// pass is one look at a SequentialJob that is this operator's.
func (r *Reconciler) pass(ctx context.Context, sj *v1alpha1.SequentialJob) (ctrl.Result, error) {
	in, err := r.observe(ctx, sj)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := r.decide(ctx, &in)
	if err != nil {
		return ctrl.Result{}, err
	}
	deferred, err := r.record(ctx, sj, &plan)
	if err != nil {
		return ctrl.Result{}, err
	}
	refusal, err := r.act(ctx, sj, &plan, in.SequentialJob.ResourceVersion)
	if err != nil {
		return ctrl.Result{}, err
	}
	if refusal == nil {
		return ctrl.Result{RequeueAfter: earlier(plan.RequeueAfter, deferred)}, nil
	}
	return r.recordRefusal(ctx, sj, in, refusal)
}

// recordRefusal decides again, now that the API server is known to refuse the plan, and
// records what that means. It does not act: what there is to do waits for its pass.
func (r *Reconciler) recordRefusal(ctx context.Context, sj *v1alpha1.SequentialJob, in sequence.Input, refusal *sequence.Refusal) (ctrl.Result, error) {
	in.SequentialJob = sj.DeepCopy()
	in.Refusal = refusal
	plan, err := r.decide(ctx, &in)
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, err := r.record(ctx, sj, &plan); err != nil {
		return ctrl.Result{}, err
	}
	wait := plan.RequeueAfter
	if plan.Create == nil && wait == 0 {
		wait = time.Millisecond // the step has failed; the next is due
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// decide asks the core until it has no more questions.
func (r *Reconciler) decide(ctx context.Context, in *sequence.Input) (sequence.Plan, error) {
	for {
		plan := sequence.Decide(*in)
		if plan.Ask == nil {
			return plan, nil
		}
		if err := r.answer(ctx, in, plan.Ask); err != nil {
			return sequence.Plan{}, err
		}
	}
}

// record stores the plan's status, then tells of it. It returns how long a write that
// may wait was put off.
func (r *Reconciler) record(ctx context.Context, sj *v1alpha1.SequentialJob, plan *sequence.Plan) (time.Duration, error) {
	if !plan.Changed {
		return 0, nil
	}
	if plan.Deferrable && !r.progress.Allow() {
		return deferral, nil
	}
	before := sj.DeepCopy()
	after := sj.DeepCopy()
	after.Status = plan.Status
	if err := kube.PatchStatus(ctx, r.client, before, after); err != nil {
		if apierrors.IsConflict(err) {
			conflicts.Inc()
		}
		return 0, fmt.Errorf("patching status: %w", err)
	}
	r.wrote(sj, after)
	r.created.settle(sj)
	for _, event := range sequence.Events(&before.Status, &sj.Status) {
		r.emit(sj, event)
	}
	countSteps(&before.Status, &sj.Status)
	return 0, nil
}

// wrote takes over what the API server stored.
func (r *Reconciler) wrote(sj, stored *v1alpha1.SequentialJob) {
	*sj = *stored
	r.writeCache.Record(sj)
}

func (r *Reconciler) emit(sj *v1alpha1.SequentialJob, event sequence.Event) {
	if event.Routine && !r.routine.Allow() {
		eventsOmitted.Inc()
		return
	}
	r.recorder.Eventf(sj, nil, event.Type, event.Reason, event.Action, "%s", event.Message)
}

// earlier is the shorter of two waits, where 0 is for ever.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
