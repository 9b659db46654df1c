package controller

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiselection "k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

const (
	// uidIndex indexes the objects of sessions by the session's UID.
	uidIndex = "session-uid"
	// claimIndex indexes sessions by the claim of their workspace, runnerIndex by their SessionRunner, parentIndex by
	// the session that they continue, and contenderIndex open and waiting sessions by their SessionRunner.
	claimIndex     = "status.workspace.claimRef.name"
	runnerIndex    = "spec.runner"
	parentIndex    = "spec.continueFrom.name"
	contenderIndex = "contender-of"
	// selectedIndex indexes NetworkPolicies by the sessions that they select.
	selectedIndex = "selected-sessions"
)

// NewCache returns a cache of the objects of sessions in these namespaces, or in all if the map is empty. It is
// separate from the manager's cache, which selects Jobs and Pods by other labels.
func NewCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	hasSession, err := labels.NewRequirement(agenticsession.LabelSessionUID, apiselection.Exists, nil)
	if err != nil {
		return nil, err
	}
	children, err := informer.NewCache(mgr, "the objects of sessions", cache.Options{
		DefaultNamespaces:    namespaces,
		DefaultLabelSelector: labels.NewSelector().Add(*hasSession),
		DefaultTransform:     kube.TrimObject,
		ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}:          {Transform: trimJob},
			&corev1.Pod{}:           {Transform: dropPodSpec},
			&coordinationv1.Lease{}: {Transform: dropLeaseHolder},
		},
	})
	if err != nil {
		return nil, err
	}
	return children, mgr.Add(children)
}

// trimJob is kube.TrimJob, which keeps what decisions read of the containers.
func trimJob(object any) (any, error) {
	var kept []corev1.Container
	if job, ok := object.(*batchv1.Job); ok {
		kept = agenticsession.ContainersToCache(job.Spec.Template.Spec.Containers)
	}
	trimmed, err := kube.TrimJob(object)
	if job, ok := trimmed.(*batchv1.Job); ok {
		job.Spec.Template.Spec.Containers = kept
	}
	return trimmed, err
}

// dropPodSpec removes a Pod's spec, except for its node, its gates and its claims, to save memory. A Pod with more claims than any Pod
// of a session keeps none.
func dropPodSpec(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		kept := corev1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGates: pod.Spec.SchedulingGates}
		for i := range pod.Spec.Volumes {
			if pod.Spec.Volumes[i].PersistentVolumeClaim != nil {
				kept.Volumes = append(kept.Volumes, pod.Spec.Volumes[i])
			}
		}
		if decision.MemoryOf(kept.Volumes) > kube.LargeBytes {
			kept.Volumes = nil
		}
		pod.Spec = kept
	}
	return kube.TrimObject(object)
}

// dropLeaseHolder removes the holder of a Lease, which may be long and is not read.
func dropLeaseHolder(object any) (any, error) {
	if lease, ok := object.(*coordinationv1.Lease); ok {
		lease.Spec = coordinationv1.LeaseSpec{RenewTime: lease.Spec.RenewTime}
	}
	return kube.TrimObject(object)
}

// restoredKinds are kinds of objects that are created again if they are deleted while an attempt is open, and of which
// only the metadata is cached. NetworkPolicies, Leases, Secrets and claims are restored too.
var restoredKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	rbacv1.SchemeGroupVersion.WithKind("Role"),
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.writeCache.Follow(context.Background(), mgr.GetCache(), &v1alpha1.AgenticSession{}); err != nil {
		return err
	}
	if err := indexFields(mgr, r.options.Children); err != nil {
		return err
	}
	if err := metric.Register(metric.NewSumCollector(mgr.GetCache(), &v1alpha1.AgenticSessionList{}, countPhases, sessionsByPhase)); err != nil {
		return err
	}
	runnerToSessions := func(ctx context.Context, runner client.Object) []reconcile.Request {
		return r.sessionRequests(ctx, runner.GetNamespace(), client.MatchingFields{runnerIndex: runner.GetName()})
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("agenticsession").
		For(&v1alpha1.AgenticSession{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.AgenticSession{}, handler.EnqueueRequestsFromMapFunc(r.affectedSessions), builder.WithPredicates(phaseOrJobChanged)).
		Watches(&v1alpha1.AgenticSession{}, handler.EnqueueRequestsFromMapFunc(r.capacity.nextSessions), builder.WithPredicates(placeChanged)).
		Watches(&v1alpha1.SessionRunner{}, handler.EnqueueRequestsFromMapFunc(runnerToSessions), builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, egressProxyChanged))).
		Watches(&v1alpha1.Policy{}, kube.NewNamespaceHandler(r.policies.Invalidate, r.sessionsOfNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(childToSession), builder.WithPredicates(ofOneSession)).
		Watches(&networkingv1.NetworkPolicy{}, kube.NewNamespaceHandler(func(string) {}, r.sessionsWithPods), builder.WithPredicates(selectsSessions, predicate.Not(ofOneSession)))
	for child, watcher := range map[client.Object]handler.EventHandler{
		&batchv1.Job{}: handler.EnqueueRequestsFromMapFunc(childToSession),
		&corev1.Pod{}:  r.deletedPods.eventHandler(),
	} {
		b = b.WatchesRawSource(source.Kind(r.options.Children, child, watcher))
	}
	b = b.WatchesRawSource(source.Kind[client.Object](r.options.Children, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.podToWaitingSessions), workspaceReleased))
	for _, kind := range restoredKinds {
		b = b.WatchesRawSource(source.Kind[client.Object](r.options.Children, newMetadata(kind), handler.EnqueueRequestsFromMapFunc(childToSession), deleted))
	}
	b = b.WatchesRawSource(source.Kind[client.Object](r.options.Children, &coordinationv1.Lease{}, r.renewals.eventHandler()))
	b = b.Watches(&v1alpha1.SessionRunner{}, deleteHandler(func(_ context.Context, runner client.Object) {
		costTotal.Forget(client.ObjectKeyFromObject(runner))
		r.capacity.forgetRunner(client.ObjectKeyFromObject(runner))
	}))
	b = b.WatchesRawSource(source.Channel(r.apiServer.changes, handler.EnqueueRequestsFromMapFunc(r.sessionsWithLease)))
	if err := mgr.Add(r.apiServer); err != nil {
		return err
	}
	if err := (&remover{r.Client, r.options.Children}).setup(mgr, r.options.Concurrency); err != nil {
		return err
	}
	tracker := newDeletionTracker(r.options.Children, r.Clock)
	b = b.Watches(&v1alpha1.AgenticSession{}, deleteHandler(tracker.sessionDeleted))
	for _, child := range []client.Object{&batchv1.Job{}, &corev1.Pod{}} {
		b = b.WatchesRawSource(source.Kind(r.options.Children, child, deleteHandler(tracker.childDeleted)))
	}
	return b.WithOptions(kube.ControllerOptions(r.options.Concurrency)).Complete(kube.RequeueOnConflict(
		&kube.Loop[*v1alpha1.AgenticSession, agenticsession.Observation, agenticsession.Decision]{
			Clients: r.Clients, Kind: r, Written: r.writeCache, New: func() *v1alpha1.AgenticSession { return &v1alpha1.AgenticSession{} },
			NeedsFresh: (*agenticsession.Decision).ChangesJobs, IsNew: func(s *v1alpha1.AgenticSession) bool { return kube.NeverObserved(s.Status.ObservedGeneration) },
		}))
}

func indexFields(mgr ctrl.Manager, children cache.Cache) error {
	ctx := context.Background()
	indexed := []client.Object{&batchv1.Job{}, &corev1.Pod{}}
	for _, kind := range restoredKinds {
		indexed = append(indexed, newMetadata(kind))
	}
	for _, child := range indexed {
		if err := children.IndexField(ctx, child, uidIndex, func(object client.Object) []string {
			return []string{object.GetLabels()[agenticsession.LabelSessionUID]}
		}); err != nil {
			return fmt.Errorf("indexing the objects of sessions: %w", err)
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &networkingv1.NetworkPolicy{}, selectedIndex, func(object client.Object) []string {
		if selected := selectedSessions(object); selected != "" {
			return []string{selected}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing NetworkPolicies: %w", err)
	}
	for name, value := range map[string]func(s *v1alpha1.AgenticSession) string{
		claimIndex:     func(s *v1alpha1.AgenticSession) string { return s.Status.Workspace.ClaimRef.Name },
		runnerIndex:    func(s *v1alpha1.AgenticSession) string { return s.Spec.Runner },
		contenderIndex: contendedRunner,
		parentIndex: func(s *v1alpha1.AgenticSession) string {
			if s.Spec.ContinueFrom == nil {
				return ""
			}
			return s.Spec.ContinueFrom.Name
		},
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.AgenticSession{}, name, func(object client.Object) []string {
			s, ok := object.(*v1alpha1.AgenticSession)
			if !ok || value(s) == "" {
				return nil
			}
			return []string{value(s)}
		}); err != nil {
			return fmt.Errorf("indexing sessions by %s: %w", name, err)
		}
	}
	return nil
}

// contendedRunner returns the SessionRunner that a session uses or waits for; empty if the session is at rest.
func contendedRunner(s *v1alpha1.AgenticSession) string {
	if agenticsession.IsAtRest(s) {
		return ""
	}
	return agenticsession.RunnerOf(s)
}

func selectedSessions(object client.Object) string {
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return ""
	}
	return agenticsession.SelectedSessions(policy)
}

var (
	// ofOneSession selects NetworkPolicies that the operator creates for single sessions, by name and label.
	ofOneSession = predicate.NewPredicateFuncs(func(object client.Object) bool {
		name := object.GetLabels()[agenticsession.LabelSession]
		return name != "" && object.GetName() == agenticsession.NetworkPolicyName(name)
	})
	// selectsSessions selects NetworkPolicies that select Pods of sessions, before or after an update.
	selectsSessions = predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return selectedSessions(e.Object) != "" },
		DeleteFunc: func(e event.DeleteEvent) bool { return selectedSessions(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return selectedSessions(e.ObjectOld)+selectedSessions(e.ObjectNew) != ""
		},
	}
)

var (
	deleted = predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	// workspaceReleased selects Pods that ended or were deleted, and so no longer use a workspace.
	workspaceReleased = predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, oldOK := e.ObjectOld.(*corev1.Pod)
			after, newOK := e.ObjectNew.(*corev1.Pod)
			return oldOK && newOK && !decision.HasPodEnded(before) && decision.HasPodEnded(after)
		},
	}
)

// podToWaitingSessions maps a Pod to the sessions that share its workspace. A session records the claim before it waits
// for the workspace.
func (r *Reconciler) podToWaitingSessions(ctx context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			requests = append(requests, r.sessionRequests(ctx, pod.Namespace, client.MatchingFields{claimIndex: claim.ClaimName})...)
		}
	}
	return requests
}

// childToSession maps an object to the session that its label names. The controller reference does not help: a Pod's
// controller is a Job.
func childToSession(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[agenticsession.LabelSession]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// egressProxyChanged selects SessionRunners whose status says something else about the egress proxy.
var egressProxyChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, oldOK := e.ObjectOld.(*v1alpha1.SessionRunner)
		after, newOK := e.ObjectNew.(*v1alpha1.SessionRunner)
		return oldOK && newOK && (before.Status.EgressProxyAddress != after.Status.EgressProxyAddress || !equality.Semantic.DeepEqual(
			meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionEgressProxyReady),
			meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionEgressProxyReady)))
	},
}

// phaseOrJobChanged selects sessions whose phase or Job changed, because other sessions may wait for the change.
var phaseOrJobChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, oldOK := e.ObjectOld.(*v1alpha1.AgenticSession)
		after, newOK := e.ObjectNew.(*v1alpha1.AgenticSession)
		return oldOK && newOK && (before.Status.Attempt.JobName != after.Status.Attempt.JobName || before.Status.Phase != after.Status.Phase)
	},
}

// placeChanged selects sessions that may have left a place to a queued session, or given up their turn.
var placeChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, oldOK := e.ObjectOld.(*v1alpha1.AgenticSession)
		after, newOK := e.ObjectNew.(*v1alpha1.AgenticSession)
		return oldOK && newOK && (before.Status.Attempt.JobName != after.Status.Attempt.JobName || before.Status.Phase != after.Status.Phase ||
			before.Status.QueuedSince != nil && after.Status.QueuedSince == nil || before.Spec.Suspend != after.Spec.Suspend ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
	},
}

// affectedSessions maps a session to the sessions that continue it or share its workspace, and to sessions that wait to
// continue any of them.
func (r *Reconciler) affectedSessions(ctx context.Context, object client.Object) []reconcile.Request {
	self := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
	sharers := []reconcile.Request{self}
	if s, ok := object.(*v1alpha1.AgenticSession); ok {
		r.capacity.isOpen(s) // as a side effect, forgets an admission that the cache shows
		if s.Status.Workspace.ClaimRef.Name != "" {
			sharers = append(sharers, r.sessionRequests(ctx, s.Namespace, client.MatchingFields{claimIndex: s.Status.Workspace.ClaimRef.Name})...)
		}
	}
	all := sets.New(sharers...)
	for _, sharer := range sharers {
		all.Insert(r.sessionRequests(ctx, sharer.Namespace, client.MatchingFields{parentIndex: sharer.Name})...)
	}
	return all.Delete(self).UnsortedList()
}

// sessionsOfNamespace returns all sessions of a namespace: any may wait for a Policy.
func (r *Reconciler) sessionsOfNamespace(ctx context.Context, namespace string) []reconcile.Request {
	return kube.RequestsForList(ctx, r.Client, &v1alpha1.AgenticSessionList{}, client.InNamespace(namespace))
}

// sessionsWithPods returns all sessions of a namespace, and deleted sessions that still have a Pod.
func (r *Reconciler) sessionsWithPods(ctx context.Context, namespace string) []reconcile.Request {
	requests := sets.New(r.sessionsOfNamespace(ctx, namespace)...)
	var pods corev1.PodList
	// At the start, each Pod is an event of its own.
	var notStarted *cache.ErrCacheNotStarted
	if err := r.options.Children.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil && !errors.As(err, &notStarted) {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the Pods of sessions; the NetworkPolicy of deleted sessions is restored at the next event", "namespace", namespace)
	}
	for i := range pods.Items {
		requests.Insert(childToSession(ctx, &pods.Items[i])...)
	}
	return requests.UnsortedList()
}

func (r *Reconciler) sessionRequests(ctx context.Context, namespace string, which client.ListOption) []reconcile.Request {
	return kube.RequestsForList(ctx, r.Client, &v1alpha1.AgenticSessionList{}, client.InNamespace(namespace), which)
}

// sessionsWithLease returns the sessions whose runner renews a Lease.
func (r *Reconciler) sessionsWithLease(ctx context.Context, _ client.Object) []reconcile.Request {
	var sessions v1alpha1.AgenticSessionList
	if err := r.Client.List(ctx, &sessions, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the sessions that need the addresses of the API server")
		return nil
	}
	var requests []reconcile.Request
	for i := range sessions.Items {
		if s := &sessions.Items[i]; s.Status.Attempt.JobName != "" && s.Status.Attempt.Limits.ActivityLease {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return requests
}
