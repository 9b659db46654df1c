// Package agenticsession carries out what package session decides: it observes an
// AgenticSession, its SessionRunner, its Jobs and their Pods, records the decision in the
// status, and acts.
//
// It puts no finalizer on a session and lists no Secrets: what a session is made of goes with
// it by the garbage collector, also when no operator runs.
package agenticsession

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/session"
)

// Options of the controller.
type Options struct {
	// Concurrency is how many sessions are reconciled at once.
	Concurrency int
	// Children is a cache of what sessions are made of, and of nothing else.
	Children cache.Cache
}

// Reconciler reconciles AgenticSessions.
type Reconciler struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options

	writeCache *kube.WriteCache[*v1alpha1.AgenticSession]
	created    *created
	departed   *deletedPods
	workspaces *workspaceReservations
}

// New returns a Reconciler that works through the manager's clients.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	return &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("agenticsession-controller"),
		clock:    clock.RealClock{},
		options:  o,

		writeCache: kube.NewWriteCache[*v1alpha1.AgenticSession](),
		created:    newCreated(),
		departed:   newDeletedPods(),
		workspaces: newWorkspaceReservations(),
	}
}

// To try a Pod the operator needs the right to make one, and to give a runner a right that it
// must have it itself.
//
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions/status,verbs=patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create
// +kubebuilder:rbac:groups="",resources=serviceaccounts;services;persistentvolumeclaims,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes one session as far as it goes now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.AgenticSession{}
	if err := r.client.Get(ctx, req.NamespacedName, s); err != nil {
		if apierrors.IsNotFound(err) { // a failed read tells nothing
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector removes what it is made of
	}
	s = r.writeCache.Newest(s)
	r.dropUnused(s)
	in, err := r.observe(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := r.decide(ctx, s, &in)
	if err != nil {
		return ctrl.Result{}, err
	}
	refusal, err := r.act(ctx, s, &plan, in.Session.ResourceVersion)
	if err != nil || refusal == nil {
		return ctrl.Result{RequeueAfter: plan.RequeueAfter}, err
	}
	return r.reconcileRefusal(ctx, s, in, refusal)
}

// reconcileRefusal decides again, now that the API server is known to refuse the plan, and
// records what that means. What there is to do waits for its pass.
func (r *Reconciler) reconcileRefusal(ctx context.Context, s *v1alpha1.AgenticSession, in session.Observation, refusal *session.Refusal) (ctrl.Result, error) {
	in.Session, in.Refusal = s.DeepCopy(), refusal
	plan, err := r.decide(ctx, s, &in)
	return ctrl.Result{RequeueAfter: plan.RequeueAfter}, err
}

// dropUnused and forget drop what is of no use any more of what this process remembers.
func (r *Reconciler) dropUnused(s *v1alpha1.AgenticSession) {
	r.created.settle(s)
	r.departed.settle(s)
	r.workspaces.release(s)
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.writeCache.Forget(key)
	r.created.forget(key)
	r.departed.forget(key)
	r.workspaces.forget(key)
}

// decide asks the core until it has no more questions, and records what it says.
func (r *Reconciler) decide(ctx context.Context, s *v1alpha1.AgenticSession, in *session.Observation) (session.Decision, error) {
	for {
		plan := session.Decide(*in)
		if plan.Question == nil {
			return plan, r.record(ctx, s, &plan)
		}
		if err := r.answerQuestion(ctx, in, plan.Question); err != nil {
			return session.Decision{}, err
		}
	}
}

// record stores the plan's status, then tells of it.
func (r *Reconciler) record(ctx context.Context, s *v1alpha1.AgenticSession, plan *session.Decision) error {
	if !plan.ChangesStatus(s) {
		return nil
	}
	before, after := s.DeepCopy(), s.DeepCopy()
	after.Status = plan.Status
	if !r.workspaces.pass(before, after) {
		return kube.ErrStale // the next pass sees whose it is
	}
	err := kube.PatchStatus(ctx, r.client, before, after)
	countStatusUpdate(err)
	if err != nil {
		r.workspaces.release(s)
		return fmt.Errorf("patching status: %w", err)
	}
	*s = *after
	r.writeCache.Record(s)
	r.dropUnused(s)
	for _, event := range plan.Events {
		r.recorder.Eventf(s, nil, event.Type, event.Reason, event.Action, "%s", event.Message)
	}
	countTransition(s, &before.Status, r.clock.Now())
	return nil
}
