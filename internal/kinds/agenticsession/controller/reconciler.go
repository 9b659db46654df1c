// Package controller executes the decisions of package agenticsession: it observes an AgenticSession, its
// SessionRunner, its Jobs and their Pods, records the decision in the status, and acts.
//
// It adds no finalizer to sessions and lists no Secrets: the garbage collector deletes a session's
// objects with it, even while no operator runs.
package controller

import (
	"context"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/adminkeys"
)

// Options of the controller.
type Options struct {
	// Concurrency is the number of sessions that are reconciled at the same time.
	Concurrency int
	// Children is a cache of the objects of sessions, and of nothing else.
	Children cache.Cache
	// Network has the properties of the cluster's network.
	Network agenticsession.NetworkSettings
	// NetworkCheck has the image of the network check and the operator's namespace; without an image, sessions have no
	// check.
	NetworkCheck agenticsession.NetworkCheck
	// OperatorAddresses returns the operator's addresses for the check; none if they are not known.
	OperatorAddresses func(context.Context) []netip.Addr
	// KeySecret has the key with which the operator signs the tokens of sessions for egress proxies.
	KeySecret types.NamespacedName
}

// Reconciler reconciles AgenticSessions.
type Reconciler struct {
	kube.Clients

	options Options

	policies   *kube.NamespaceCache[policy.Set]
	writeCache *kube.WriteCache[*v1alpha1.AgenticSession]
	// createdJobs are Jobs that this process created and whose UID no status contains yet: a Job
	// that is deleted before the cache shows it is lost and must not be created again.
	createdJobs *kube.Store[createdJob]
	deletedPods *deletedPods
	renewals    *renewals
	workspaces  *workspaceReservations
	capacity    *capacity
	keys        *adminkeys.Store
	apiServer   *apiServer
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	clients := kube.NewClients(mgr, "agenticsession-controller")
	return &Reconciler{
		Clients: clients,
		options: o,
		keys:    adminkeys.New(clients, o.KeySecret),

		policies:    kube.NewPolicyCache(mgr.GetClient()),
		writeCache:  kube.NewWriteCache[*v1alpha1.AgenticSession](),
		createdJobs: kube.NewStore[createdJob](),
		deletedPods: newDeletedPods(),
		renewals:    newRenewals(clients.Clock),
		workspaces:  newWorkspaceReservations(),
		capacity:    newCapacity(),
		apiServer:   newAPIServer(mgr.GetAPIReader()),
	}
}

// Admission policies let the operator change only the workspace gate of a session's Pod and the deadline of its Job.
// A dry run of a Pod needs the permission to create Pods, and the operator can grant a runner only
// permissions that it has itself.
//
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners;policies,verbs=list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes the next actions of one session.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.AgenticSession{}
	if err := r.Client.Get(ctx, req.NamespacedName, s); err != nil {
		if !apierrors.IsNotFound(err) { // the session may exist
			return ctrl.Result{}, err
		}
		r.forget(req.NamespacedName)
		return ctrl.Result{}, r.restoreDefaultDeny(ctx, req.NamespacedName)
	}
	if !s.DeletionTimestamp.IsZero() { // the garbage collector deletes its objects
		return ctrl.Result{}, r.restoreDefaultDeny(ctx, req.NamespacedName)
	}
	r.capacity.isOpen(s) // forgets an admission that the cache shows
	s = r.writeCache.Newest(s)
	r.forgetUnused(s)
	observation, err := r.observe(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision, err := r.decide(ctx, &observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.record(ctx, s, &observation, &decision); err != nil {
		return ctrl.Result{}, err
	}
	refusal, err := r.act(ctx, s, &decision, observation.Session.ResourceVersion)
	if err != nil || refusal == nil {
		return ctrl.Result{RequeueAfter: decision.RequeueAfter}, err
	}
	// The API server refused an object, so decide again, and record that decision. The next reconciliation executes its actions.
	observation.Session, observation.Refusal = s.DeepCopy(), refusal
	if decision, err = r.decide(ctx, &observation); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, r.record(ctx, s, &observation, &decision)
}

// decide answers the core's questions until it has none.
func (r *Reconciler) decide(ctx context.Context, observation *agenticsession.Observation) (agenticsession.Decision, error) {
	for {
		decision := agenticsession.Decide(*observation)
		if decision.Question == nil {
			return decision, nil
		}
		if err := r.answerQuestion(ctx, observation, decision.Question); err != nil {
			return agenticsession.Decision{}, err
		}
	}
}

// forgetUnused drops the remembered values that the session's status makes obsolete.
func (r *Reconciler) forgetUnused(s *v1alpha1.AgenticSession) {
	if created, found := r.createdJobs.Get(s); found && (s.Status.JobUID != "" || s.Status.Job != created.name) {
		r.createdJobs.Delete(s)
	}
	if s.Status.Job == "" {
		r.deletedPods.Forget(client.ObjectKeyFromObject(s))
	}
	r.workspaces.releaseUnused(s)
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.writeCache.Forget(key)
	r.createdJobs.Forget(key)
	r.deletedPods.Forget(key)
	r.renewals.Forget(key)
	r.workspaces.forget(key)
	r.capacity.forget(key)
}
