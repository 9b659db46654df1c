// Package controller executes the decisions of package agenticsession: it observes an AgenticSession, its
// SessionRunner, its Jobs and their Pods, records the decision in the status, and acts.
//
// It adds no finalizer to sessions, so that the garbage collector deletes a session's objects even while no operator
// runs; it only ends the Pods of deleted sessions sooner. It lists no Secrets.
package controller

import (
	"context"
	"net/netip"
	"time"

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
	// Children is a cache of only the objects of sessions.
	Children cache.Cache
	// Network has the properties of the cluster's network.
	Network agenticsession.NetworkSettings
	// NetworkCheck has the image of the network check and the operator's namespace; without an image, sessions have no
	// network check.
	NetworkCheck agenticsession.NetworkCheck
	// AdmissionPolicies are those without which no attempt starts.
	AdmissionPolicies *kube.AdmissionPolicies
	// OperatorAddresses returns the operator's addresses for the network check; none if they are not known.
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
	workspaces  *workspaces
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
		workspaces:  newWorkspaces(clients),
		capacity:    newCapacity(clients),
		apiServer:   newAPIServer(mgr.GetAPIReader()),
	}
}

// Admission policies let the operator change only the workspace gate of a session's Pod and the deadline of its Job. A
// dry run of a Pod needs the permission to create Pods, and the operator can grant only permissions that it has itself.
//
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=agenticsessions/finalizers,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners;policies,verbs=list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Decide implements kube.Kind.
func (*Reconciler) Decide(observation *agenticsession.Observation) agenticsession.Decision {
	return agenticsession.Decide(*observation)
}

// Finish implements kube.Kind.
func (*Reconciler) Finish(_ *v1alpha1.AgenticSession, _ *agenticsession.Observation, decision *agenticsession.Decision) time.Duration {
	return decision.RequeueAfter
}

// forgetUnused drops the remembered values that the session's status makes obsolete.
func (r *Reconciler) forgetUnused(s *v1alpha1.AgenticSession) {
	if created, found := r.createdJobs.Get(s); found && (s.Status.Attempt.JobUID != "" || s.Status.Attempt.JobName != created.name) {
		r.createdJobs.Delete(s)
	}
	if s.Status.Attempt.JobName == "" {
		r.deletedPods.Forget(client.ObjectKeyFromObject(s))
	}
	r.workspaces.releaseUnused(s)
}

// Forget implements kube.Kind.
func (r *Reconciler) Forget(ctx context.Context, key types.NamespacedName) error {
	r.createdJobs.Forget(key)
	r.deletedPods.Forget(key)
	r.renewals.Forget(key)
	r.workspaces.forget(key)
	r.capacity.forget(key)
	return r.restoreDefaultDeny(ctx, key)
}
