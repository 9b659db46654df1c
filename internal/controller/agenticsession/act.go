package agenticsession

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/session"
)

// fieldOwner of what a session is made of. A claim that several sessions own has one more
// for each, so that none takes another's reference away.
const fieldOwner = client.FieldOwner("yardmaster-session")

// act carries out a plan whose status is recorded; it was decided on the version read. A
// refusal is not an error: the core says what it means.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.AgenticSession, plan *session.Decision, read string) (*session.Refusal, error) {
	acts := len(plan.DeleteJobs) > 0 || plan.CreateJob != nil || plan.DeleteSession
	if acts && s.ResourceVersion == read {
		if err := r.assertFresh(ctx, s); err != nil {
			return nil, err
		}
	}
	for _, job := range plan.DeleteJobs {
		if err := r.deleteJob(ctx, job); err != nil {
			return nil, err
		}
	}
	if refusal, err := r.applyObjects(ctx, s, plan); refusal != nil || err != nil {
		return refusal, err
	}
	if plan.CreateJob != nil {
		if refusal, err := r.createJob(ctx, s, plan); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, r.cleanup(ctx, s, plan)
}

// cleanup removes what is of no use any more.
func (r *Reconciler) cleanup(ctx context.Context, s *v1alpha1.AgenticSession, plan *session.Decision) error {
	if plan.DeleteSecret != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: plan.DeleteSecret}}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, secret)); err != nil {
			return fmt.Errorf("deleting inputs that nothing uses: %w", err)
		}
	}
	if !plan.DeleteSession {
		return nil
	}
	err := r.client.Delete(ctx, s, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the expired session: %w", err)
	}
	return nil
}

// assertFresh reads the session again before a pass acts that has written nothing, and so
// was not told if it is behind.
func (r *Reconciler) assertFresh(ctx context.Context, s *v1alpha1.AgenticSession) error {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		return fmt.Errorf("reading the session again: %w", err)
	}
	if now.UID != s.UID || now.ResourceVersion != s.ResourceVersion {
		return kube.ErrStale
	}
	return nil
}

// deleteJob deletes a Job as it was seen: one that has ended meanwhile has an outcome.
func (r *Reconciler) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Job %s: %w", job.Name, err)
	}
	return nil
}

// applyObjects brings the plan's objects about, in their order.
func (r *Reconciler) applyObjects(ctx context.Context, s *v1alpha1.AgenticSession, plan *session.Decision) (*session.Refusal, error) {
	for _, object := range plan.ApplyObjects {
		if refusal, err := r.applyObject(ctx, s, object); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if plan.ShareClaim == "" {
		return nil, nil
	}
	return r.addClaimOwner(ctx, s, plan.ShareClaim)
}

func (r *Reconciler) applyObject(ctx context.Context, s *v1alpha1.AgenticSession, object session.Object) (*session.Refusal, error) {
	if policy, is := object.(*networkingv1.NetworkPolicy); is && r.isNetworkPolicyCurrent(ctx, s, policy) {
		return nil, nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", object.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	var refused error
	if canCreateFirst(object) && s.Status.Attempt == 1 {
		if refused = r.client.Create(ctx, u.DeepCopy(), fieldOwner); refused == nil {
			return nil, nil
		}
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(u.GroupVersionKind())
	found, err := getIfExists(ctx, r.live, s.Namespace, u.GetName(), there)
	switch {
	case err != nil:
		return nil, err
	case found && !session.WasCreatedFor(s, there):
		return foreign(u.GetKind(), u.GetName()), nil
	case found && u.GetKind() == "Lease": // what stands in it is the runner's
		return nil, nil
	case !found && refused != nil:
		return refusalOf(refused, u.GetKind(), "making "+u.GetKind()+" "+u.GetName())
	}
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	return refusalOf(err, u.GetKind(), "applying "+u.GetKind()+" "+u.GetName())
}

// canCreateFirst tells of which objects nothing is ever left out later. They can be made first, and
// looked at only if that fails: then they are there, or a quota has no room, and an object
// that is there takes none. What is made so belongs to the same manager as what is applied,
// but what an apply leaves out would stay.
func canCreateFirst(object session.Object) bool {
	switch object.(type) {
	case *networkingv1.NetworkPolicy, *corev1.Service:
		return false
	default:
		return true
	}
}

// isNetworkPolicyCurrent tells whether the NetworkPolicy is there as it has to be.
func (r *Reconciler) isNetworkPolicyCurrent(ctx context.Context, s *v1alpha1.AgenticSession, policy *networkingv1.NetworkPolicy) bool {
	there := &networkingv1.NetworkPolicy{}
	found, err := getIfExists(ctx, r.options.Children, policy.Namespace, policy.Name, there)
	return err == nil && found && session.IsControlledBy(s, there) && equality.Semantic.DeepEqual(there.Spec, policy.Spec)
}

// addClaimOwner makes the session an owner, though not the controller, of another session's claim.
func (r *Reconciler) addClaimOwner(ctx context.Context, s *v1alpha1.AgenticSession, name string) (*session.Refusal, error) {
	claim := &metav1.PartialObjectMetadata{}
	claim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	found, err := getIfExists(ctx, r.live, s.Namespace, name, claim)
	if err != nil {
		return nil, err
	}
	if !found || claim.Labels[session.LabelSessionUID] == "" || !claim.DeletionTimestamp.IsZero() {
		return &session.Refusal{Kind: session.RefusedForeign, Object: "PersistentVolumeClaim", Message: "there is no workspace " + name + " of a session any more"}, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(claim.GroupVersionKind())
	u.SetNamespace(s.Namespace)
	u.SetName(name)
	u.SetUID(claim.UID) // never makes another
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgenticSession", Name: s.Name, UID: s.UID,
	}})
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner+"-"+client.FieldOwner(s.UID), client.ForceOwnership)
	return refusalOf(err, "PersistentVolumeClaim", "joining "+name)
}

// createJob tries the Pod, and makes the Job.
func (r *Reconciler) createJob(ctx context.Context, s *v1alpha1.AgenticSession, plan *session.Decision) (*session.Refusal, error) {
	err := r.client.Create(ctx, plan.DryRunPod.DeepCopy(), client.DryRunAll, fieldOwner)
	if refusal, err := refusalOf(err, "Pod", "trying a Pod"); refusal != nil || err != nil {
		return refusal, err
	}
	job := plan.CreateJob.DeepCopy()
	err = r.client.Create(ctx, job, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		// Ours if a pass made it that could not tell, or the cache is behind.
		found, err := getIfExists(ctx, r.live, job.Namespace, job.Name, job)
		switch {
		case err != nil:
			return nil, err
		case !found:
			return nil, kube.ErrStale
		case !session.IsControlledBy(s, job):
			return foreign("Job", job.Name), nil
		}
	} else if refusal, err := refusalOf(err, "Job", "making Job "+job.Name); refusal != nil || err != nil {
		return refusal, err
	}
	r.created.add(s, job.Name, job.UID)
	return nil, nil
}

func foreign(kind, name string) *session.Refusal {
	return &session.Refusal{
		Kind: session.RefusedForeign, Object: kind,
		Message: fmt.Sprintf("%s %s exists and is not this session's; delete or rename it", kind, name),
	}
}

// refusalOf sorts an error of writing an object: a refusal is the core's to weigh, all else
// is an error to try again after. Both are nil without an error.
func refusalOf(err error, kind, doing string) (*session.Refusal, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, kube.ErrStale // the session is going with it
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "quota"):
		return &session.Refusal{Kind: session.RefusedQuota, Object: kind, Message: err.Error()}, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isDenied(err):
		return &session.Refusal{Kind: session.RefusedInvalid, Object: kind, Message: err.Error()}, nil
	default:
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
}

// isDenied tells a policy's refusal from a missing permission: the API server answers
// Forbidden to both, and only the words differ.
func isDenied(err error) bool {
	text := err.Error()
	if strings.Contains(text, "admission webhook") && strings.Contains(text, "denied the request") {
		return true
	}
	return apierrors.IsForbidden(err) && (strings.Contains(text, "ValidatingAdmissionPolicy") || strings.Contains(text, "violates PodSecurity") ||
		strings.Contains(text, "RuntimeClass") || strings.Contains(text, "maximum") || strings.Contains(text, "minimum"))
}
