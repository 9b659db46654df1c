package controller

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

type createdJob struct {
	name string
	uid  types.UID
}

// Record implements kube.Kind. A status that opens an attempt is stored only if no other session reserved the workspace, and
// the SessionRunner has a place.
func (r *Reconciler) Record(
	ctx context.Context, s *v1alpha1.AgenticSession, observation *agenticsession.Observation, decision *agenticsession.Decision,
) (*v1alpha1.AgenticSession, error) {
	if !decision.ChangesStatus(s) {
		return s, nil
	}
	after := s.DeepCopy()
	after.Status = decision.Status
	opens := s.Status.Attempt.JobName == "" && after.Status.Attempt.JobName != ""
	// Reserve before the status is written, because waiting sessions check the reservation when they observe the
	// status.
	if !opens || after.Status.Workspace.ClaimRef.Name == "" {
		r.workspaces.releaseUnused(after)
	} else if !r.workspaces.reserve(after) {
		return s, kube.ErrStale // the next reconciliation observes which session uses it
	}
	if opens {
		if err := r.capacity.reservePlace(ctx, observation.Runner, after); err != nil {
			r.workspaces.releaseUnused(s)
			return s, err
		}
	}
	err := kube.UpdateStatus(ctx, r.Client, s, after)
	if opens {
		r.capacity.settle(after, err)
	}
	countStatusUpdate(err)
	if err != nil {
		r.workspaces.releaseUnused(s)
		return s, fmt.Errorf("updating status: %w", err)
	}
	r.writeCache.Record(after)
	r.forgetUnused(after)
	for _, event := range decision.Events {
		kube.EmitEvent(r.Recorder, after, event)
	}
	countTransition(after, &s.Status, r.Clock.Now())
	return after, nil
}

// Act implements kube.Kind.
func (r *Reconciler) Act(
	ctx context.Context, s *v1alpha1.AgenticSession, observation *agenticsession.Observation, d *agenticsession.Decision,
) (bool, error) {
	refusal, err := r.act(ctx, s, d)
	if refusal == nil || err != nil {
		return false, err
	}
	observation.Session, observation.Refusal = s.DeepCopy(), refusal
	return true, nil
}

// act executes a decision in the order of its fields. It returns the object that the API server refused, if any.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.AgenticSession, d *agenticsession.Decision) (*decision.Refusal, error) {
	for _, job := range d.DeleteJobs { // a Job that ended since it was observed has an outcome
		if err := kube.DeleteVersion(ctx, r.Client, job, metav1.DeletePropagationForeground); err != nil {
			return nil, err
		}
	}
	if deadline := d.SetDeadline; deadline != nil {
		metadata := newMetadata(batchv1.SchemeGroupVersion.WithKind("Job"))
		metadata.Namespace, metadata.Name = deadline.Job.Namespace, deadline.Job.Name
		err := patchObject(ctx, r.Client, metadata, types.MergePatchType, map[string]any{
			"metadata": map[string]any{"uid": deadline.Job.UID}, "spec": map[string]any{"activeDeadlineSeconds": deadline.Seconds},
		})
		if err != nil && !apierrors.IsNotFound(err) { // the Job was deleted or replaced
			return nil, fmt.Errorf("setting the deadline of Job %s: %w", deadline.Job.Name, err)
		}
	}
	for _, object := range d.ApplyObjects {
		if refusal, err := r.applyObject(ctx, s, object); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if d.ShareClaim != nil {
		if err := r.workspaces.addClaimOwner(ctx, s, d.ShareClaim); err != nil {
			return nil, err
		}
	}
	if d.KeepClaim != nil {
		if err := r.workspaces.keepClaim(ctx, d.KeepClaim); err != nil {
			return nil, err
		}
	}
	if d.ReserveWorkspace != nil {
		if err := r.workspaces.reservePod(ctx, d.ReserveWorkspace); err != nil {
			return nil, err
		}
	}
	if d.CreateJob != nil {
		if refusal, err := r.createJob(ctx, s, d); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if d.DeleteSecret != "" { // another user may have deleted the inputs and reused their name
		secret, err := kube.ReadMetadata(ctx, r.Live, corev1.SchemeGroupVersion.WithKind("Secret"), s.Namespace, d.DeleteSecret)
		if err == nil && secret != nil && decision.WasCreatedFor(s, secret, agenticsession.LabelSessionUID) {
			err = kube.DeleteVersion(ctx, r.Client, secret, metav1.DeletePropagationBackground)
		}
		if err != nil {
			return nil, fmt.Errorf("deleting unused inputs: %w", err)
		}
	}
	if d.DeleteSession {
		return nil, kube.DeleteVersion(ctx, r.Client, s, metav1.DeletePropagationBackground)
	}
	return nil, nil
}

// createJob creates the Job after a dry run of its Pod. The Job already exists if an earlier request succeeded without
// a response, or if the cache is stale.
func (r *Reconciler) createJob(ctx context.Context, s *v1alpha1.AgenticSession, d *agenticsession.Decision) (*decision.Refusal, error) {
	err := r.Client.Create(ctx, d.DryRunPod.DeepCopy(), client.DryRunAll, fieldOwner)
	if refusal, err := kube.AsRefusal(err, decision.Refusal{Kind: "Pod", Name: d.DryRunPod.GenerateName}); refusal != nil || err != nil {
		return refusal, err
	}
	job := d.CreateJob.DeepCopy()
	_, refusal, err := r.CreateOwned(ctx, job, s, "AgenticSession", decision.Refusal{Kind: "Job", Name: job.Name}, fieldOwner)
	if refusal != nil || err != nil {
		return refusal, err
	}
	r.createdJobs.Set(s, createdJob{job.Name, job.UID})
	return nil, nil
}

// fieldOwner of a session's objects. A shared claim has a field owner for each session, so that no session removes
// another's owner reference.
const fieldOwner = client.FieldOwner("yardmaster-session")

func (r *Reconciler) applyObject(ctx context.Context, s *v1alpha1.AgenticSession, object decision.Object) (*decision.Refusal, error) {
	if policy, ok := object.(*networkingv1.NetworkPolicy); ok && r.isNetworkPolicyCurrent(ctx, policy) {
		return nil, nil
	}
	u, err := kube.ApplyConfiguration(object)
	if err != nil {
		return nil, err
	}
	// The creation without a read before saves a request. If it fails, the object is read: it may exist, or exceed a quota
	// that does not matter if it exists. Objects from which a later apply may remove fields must be applied from the start,
	// because apply removes only fields that an earlier apply set.
	canShrink := slices.Contains([]string{"NetworkPolicy", "Service"}, u.GetKind())
	var createError error
	if !canShrink && s.Status.Attempt.Attempt == 1 {
		if createError = r.Client.Create(ctx, u.DeepCopy(), fieldOwner); createError == nil {
			return nil, nil
		}
	}
	existing, err := kube.ReadMetadata(ctx, r.Live, u.GroupVersionKind(), s.Namespace, u.GetName())
	isOwn := func(object metav1.Object) bool {
		return object.GetName() == agenticsession.DefaultDenyPolicyName || decision.WasCreatedFor(s, object, agenticsession.LabelSessionUID)
	}
	switch {
	case err != nil:
		return nil, err
	case existing == nil && createError != nil:
		return kube.AsRefusal(createError, decision.Refusal{Kind: u.GetKind(), Name: u.GetName()})
	case existing != nil && u.GetKind() == "Lease" && isOwn(existing): // the runner writes its spec
		return nil, nil
	}
	return r.ApplyOwned(ctx, u, existing, isOwn, "AgenticSession", fieldOwner)
}

// isNetworkPolicyCurrent reports whether the cache contains the NetworkPolicy unchanged.
func (r *Reconciler) isNetworkPolicyCurrent(ctx context.Context, policy *networkingv1.NetworkPolicy) bool {
	cached, err := kube.GetIfExists(ctx, r.Client, policy.Namespace, policy.Name, &networkingv1.NetworkPolicy{})
	return err == nil && agenticsession.IsNetworkPolicyCurrent(cached, policy)
}

// restoreDefaultDeny restores the NetworkPolicy that denies sessions all connections, for the Pods of a deleted
// session.
func (r *Reconciler) restoreDefaultDeny(ctx context.Context, key types.NamespacedName) error {
	policy := agenticsession.NewDefaultDenyPolicy(key.Namespace)
	if r.isNetworkPolicyCurrent(ctx, policy) {
		return nil
	}
	var pods corev1.PodList
	if err := r.options.Children.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{agenticsession.LabelSession: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil
	}
	refusal, err := r.applyObject(ctx, &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace}}, policy)
	if refusal != nil {
		return fmt.Errorf("restoring NetworkPolicy %s: %s", policy.Name, refusal.Message)
	}
	return err
}
