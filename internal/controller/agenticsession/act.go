package agenticsession

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/session"
)

// createdJob identifies a Job that this process created.
type createdJob struct {
	name string
	uid  types.UID
}

// act executes a decision whose status is recorded, and which is based on the version readVersion.
// It returns the object that the API server refused, if any; the core decides what that means.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision, readVersion string) (*core.Refusal, error) {
	changesJobs := len(decision.DeleteJobs) > 0 || decision.CreateJob != nil || decision.DeleteSession
	if changesJobs && s.ResourceVersion == readVersion { // no status write has proved that s is current
		if err := kube.AssertFresh(ctx, r.Live, r.Client, s); err != nil {
			return nil, err
		}
	}
	for _, job := range decision.DeleteJobs { // a Job that ended since it was observed has an outcome
		if err := kube.DeleteVersion(ctx, r.Client, job, metav1.DeletePropagationForeground); err != nil {
			return nil, err
		}
	}
	if refusal, err := r.applyObjects(ctx, s, decision); refusal != nil || err != nil {
		return refusal, err
	}
	if decision.CreateJob != nil {
		if refusal, err := r.createJob(ctx, s, decision); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, r.cleanup(ctx, s, decision)
}

// cleanup deletes the old inputs, and the session at the end of its time to live.
func (r *Reconciler) cleanup(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision) error {
	if decision.DeleteSecret != "" {
		if err := r.deleteInputs(ctx, s, decision.DeleteSecret); err != nil {
			return fmt.Errorf("deleting unused inputs: %w", err)
		}
	}
	if decision.DeleteSession {
		return kube.DeleteVersion(ctx, r.Client, s, metav1.DeletePropagationBackground)
	}
	return nil
}

// deleteInputs deletes a Secret with old inputs. It keeps a Secret that the operator did not create
// for the session: anyone may have deleted the inputs and reused their name.
func (r *Reconciler) deleteInputs(ctx context.Context, s *v1alpha1.AgenticSession, name string) error {
	secret, err := r.getMetadata(ctx, s.Namespace, name, corev1.SchemeGroupVersion.WithKind("Secret"))
	if err != nil || secret == nil || !core.WasCreatedFor(s, secret, session.LabelSessionUID) {
		return err
	}
	return kube.DeleteVersion(ctx, r.Client, secret, metav1.DeletePropagationBackground)
}

// createJob creates the Job after a dry run of its Pod. The Job already exists if a reconciliation
// created it without receiving the answer, or if the cache is behind.
func (r *Reconciler) createJob(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision) (*core.Refusal, error) {
	err := r.Client.Create(ctx, decision.DryRunPod.DeepCopy(), client.DryRunAll, fieldOwner)
	if refusal, err := kube.AsRefusal(err, core.Refusal{Kind: "Pod", Name: decision.DryRunPod.GenerateName}); refusal != nil || err != nil {
		return refusal, err
	}
	job := decision.CreateJob.DeepCopy()
	err = r.Client.Create(ctx, job, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		existing, err := kube.GetIfExists(ctx, r.Live, job.Namespace, job.Name, &batchv1.Job{})
		switch {
		case err != nil:
			return nil, err
		case existing == nil:
			return nil, kube.ErrStale
		case !metav1.IsControlledBy(existing, s):
			return core.NameTaken(core.Refusal{Kind: "Job", Name: job.Name}, "AgenticSession"), nil
		}
		job = existing
	} else if refusal, err := kube.AsRefusal(err, core.Refusal{Kind: "Job", Name: job.Name}); refusal != nil || err != nil {
		return refusal, err
	}
	r.createdJobs.Set(s, createdJob{job.Name, job.UID})
	return nil, nil
}

// fieldOwner of a session's objects. A claim that several sessions own has a further field owner
// for each of them, so that none removes another's owner reference.
const fieldOwner = client.FieldOwner("yardmaster-session")

// applyObjects applies the decision's objects in their order.
func (r *Reconciler) applyObjects(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision) (*core.Refusal, error) {
	for _, object := range decision.ApplyObjects {
		if refusal, err := r.applyObject(ctx, s, object); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if decision.ShareClaim == "" {
		return nil, nil
	}
	return r.addClaimOwner(ctx, s, decision.ShareClaim, decision.ShareClaimFrom)
}

func (r *Reconciler) applyObject(ctx context.Context, s *v1alpha1.AgenticSession, object core.Object) (*core.Refusal, error) {
	if policy, ok := object.(*networkingv1.NetworkPolicy); ok && r.isNetworkPolicyCurrent(ctx, policy) {
		return nil, nil
	}
	u, err := applyConfigurationOf(object)
	if err != nil {
		return nil, err
	}
	var createError error
	if canCreateFirst(object) && s.Status.Attempt == 1 {
		if createError = r.Client.Create(ctx, u.DeepCopy(), fieldOwner); createError == nil {
			return nil, nil
		}
	}
	existing, err := r.getMetadata(ctx, s.Namespace, u.GetName(), u.GroupVersionKind())
	switch {
	case err != nil:
		return nil, err
	case existing != nil && u.GetName() != session.DefaultDenyPolicyName && !core.WasCreatedFor(s, existing, session.LabelSessionUID):
		return core.NameTaken(core.Refusal{Kind: u.GetKind(), Name: u.GetName()}, "AgenticSession"), nil
	case existing != nil && u.GetKind() == "Lease": // the runner writes its spec
		return nil, nil
	case existing == nil && createError != nil:
		return kube.AsRefusal(createError, core.Refusal{Kind: u.GetKind(), Name: u.GetName()})
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	return kube.AsRefusal(err, core.Refusal{Kind: u.GetKind(), Name: u.GetName()})
}

// canCreateFirst reports whether an object can be created without a read before, which is one
// request instead of two. If that fails, the object exists, or a quota is exceeded, which an
// existing object does not need. An object from which a later apply removes fields cannot: apply
// removes only fields that an earlier apply set.
func canCreateFirst(object core.Object) bool {
	switch object.(type) {
	case *networkingv1.NetworkPolicy, *corev1.Service:
		return false
	default:
		return true
	}
}

// isNetworkPolicyCurrent reports whether the cache contains the NetworkPolicy as it should be.
func (r *Reconciler) isNetworkPolicyCurrent(ctx context.Context, policy *networkingv1.NetworkPolicy) bool {
	cached, err := kube.GetIfExists(ctx, r.Client, policy.Namespace, policy.Name, &networkingv1.NetworkPolicy{})
	return err == nil && session.IsNetworkPolicyCurrent(cached, policy)
}

// applyConfigurationOf returns the fields of an object that the operator applies. A NetworkPolicy without rules in a
// direction has none explicitly: otherwise an apply would keep rules that somebody else added.
func applyConfigurationOf(object core.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	if spec, ok := raw["spec"].(map[string]any); ok && u.GetKind() == "NetworkPolicy" {
		for _, direction := range []string{"ingress", "egress"} {
			if spec[direction] == nil {
				spec[direction] = []any{}
			}
		}
	}
	return u, nil
}

// restoreDefaultDeny restores the NetworkPolicy of a namespace that denies sessions all connections, for the Pods of
// a session that does not exist any more.
func (r *Reconciler) restoreDefaultDeny(ctx context.Context, key types.NamespacedName) error {
	policy := session.NewDefaultDenyPolicy(key.Namespace)
	if r.isNetworkPolicyCurrent(ctx, policy) {
		return nil
	}
	var pods corev1.PodList
	if err := r.options.Children.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{session.LabelSession: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
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

// getMetadata reads the metadata of an object from the API server; nil if it does not exist.
func (r *Reconciler) getMetadata(ctx context.Context, namespace, name string, kind schema.GroupVersionKind) (*metav1.PartialObjectMetadata, error) {
	into := &metav1.PartialObjectMetadata{}
	into.SetGroupVersionKind(kind)
	return kube.GetIfExists(ctx, r.Live, namespace, name, into)
}

// addClaimOwner makes the session an owner, but not the controller, of the continued session's claim. A
// session that was created with the name of a deleted one has the name of that one's claim in its status,
// but does not own it.
func (r *Reconciler) addClaimOwner(ctx context.Context, s *v1alpha1.AgenticSession, name string, continued types.UID) (*core.Refusal, error) {
	kind := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	claim, err := r.getMetadata(ctx, s.Namespace, name, kind)
	if err != nil {
		return nil, err
	}
	if claim == nil || claim.Labels[session.LabelSessionUID] == "" || !claim.DeletionTimestamp.IsZero() {
		return &core.Refusal{
			Class: apierror.NotFound, Kind: "PersistentVolumeClaim", Name: name,
			Message: "PersistentVolumeClaim " + name + " of the continued session no longer exists; continue another session, or create one without continueFrom",
		}, nil
	}
	if !ownsClaim(s.UID, claim) && !ownsClaim(continued, claim) {
		return &core.Refusal{
			Class: apierror.NotFound, Kind: "PersistentVolumeClaim", Name: name,
			Message: "PersistentVolumeClaim " + name + " does not belong to the continued session; continue another session, or create one without continueFrom",
		}, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(s.Namespace)
	u.SetName(name)
	u.SetUID(claim.UID) // apply must not create another claim
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgenticSession", Name: s.Name, UID: s.UID,
	}})
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner+"-"+client.FieldOwner(s.UID), client.ForceOwnership)
	return kube.AsRefusal(err, core.Refusal{Kind: "PersistentVolumeClaim", Name: name})
}

// ownsClaim reports whether a session created a claim or is one of its owners. A retained claim has no owner,
// only the label of the session that created it.
func ownsClaim(uid types.UID, claim metav1.Object) bool {
	isOwner := func(owner metav1.OwnerReference) bool { return owner.UID == uid }
	return uid != "" && (claim.GetLabels()[session.LabelSessionUID] == string(uid) || slices.ContainsFunc(claim.GetOwnerReferences(), isOwner))
}
