package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// podsPerPage limits the memory of a list of all Pods of a namespace.
const podsPerPage = 500

var (
	claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	notEnded  = fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
)

// listMountingPods lists the Pods of a namespace that mount a claim and have not ended. It does not use a cache: the
// operator caches only the Pods of sessions, and any Pod can mount the claim.
func (r *Reconciler) listMountingPods(ctx context.Context, namespace, claim string) ([]corev1.Pod, error) {
	var mounting []corev1.Pod
	for next := ""; ; {
		var page corev1.PodList
		if err := r.Live.List(ctx, &page, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: notEnded}, client.Limit(podsPerPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing the Pods that mount PersistentVolumeClaim %s: %w", claim, err)
		}
		for i := range page.Items {
			if agenticsession.MountsClaim(&page.Items[i], claim) {
				mounting = append(mounting, page.Items[i])
			}
		}
		if next = page.Continue; next == "" {
			return mounting, nil
		}
	}
}

// reserveWorkspace reserves a claim for a Pod, only in the version that was read, and then removes the Pod's gate. Both
// can be repeated.
func (r *Reconciler) reserveWorkspace(ctx context.Context, reservation *agenticsession.WorkspaceReservation) error {
	claim, pod := reservation.Claim, reservation.Pod
	if claim.Annotations[agenticsession.AnnotationWorkspacePod] != string(pod.UID) {
		if err := r.patchObject(ctx, claim, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
			"annotations": map[string]any{agenticsession.AnnotationWorkspacePod: pod.UID},
		}}); err != nil {
			return fmt.Errorf("reserving PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	metadata := newMetadata(corev1.SchemeGroupVersion.WithKind("Pod"))
	metadata.Namespace, metadata.Name = pod.Namespace, pod.Name
	if err := r.patchObject(ctx, metadata, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": agenticsession.WorkspaceGate}}},
	}); err != nil {
		return fmt.Errorf("removing the gate of Pod %s: %w", pod.Name, err)
	}
	return nil
}

func newMetadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind)
	return metadata
}

func (r *Reconciler) patchObject(ctx context.Context, object *metav1.PartialObjectMetadata, kind types.PatchType, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return r.Client.Patch(ctx, object.DeepCopy(), client.RawPatch(kind, raw), fieldOwner)
}

// keepClaim removes the sessions from the owners of a claim, only in the version that was read.
func (r *Reconciler) keepClaim(ctx context.Context, claim *metav1.PartialObjectMetadata) error {
	if err := r.patchObject(ctx, claim, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "ownerReferences": agenticsession.KeptOwners(claim),
	}}); err != nil {
		return fmt.Errorf("keeping PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// addClaimOwner makes the session an owner, but not the controller, of its parent's claim.
func (r *Reconciler) addClaimOwner(ctx context.Context, s *v1alpha1.AgenticSession, claim *metav1.PartialObjectMetadata) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(claimKind)
	u.SetNamespace(s.Namespace)
	u.SetName(claim.Name)
	u.SetUID(claim.UID) // apply must not create another claim
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgenticSession", Name: s.Name, UID: s.UID,
	}})
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner+"-"+client.FieldOwner(s.UID), client.ForceOwnership); err != nil {
		return fmt.Errorf("becoming an owner of PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// workspaceReservations remembers which sessions this process started in a workspace. Until the cache shows them, two
// sessions with the same parent would both find its workspace free.
type workspaceReservations struct {
	// mu is held from the check for another user to the reservation.
	mu sync.Mutex
	// claims are the names of reserved claims, by session.
	claims *kube.Store[string]
}

func newWorkspaceReservations() *workspaceReservations {
	return &workspaceReservations{claims: kube.NewStore[string]()}
}

// reserve reserves the workspace of the session's status, unless another session has reserved it.
func (w *workspaceReservations) reserve(s *v1alpha1.AgenticSession) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, _ := w.otherUser(s, s.Status.Workspace.ClaimRef.Name); name != "" {
		return false
	}
	w.claims.Set(s, s.Status.Workspace.ClaimRef.Name)
	return true
}

// otherUser returns another session that reserved the claim; an empty name if none did.
func (w *workspaceReservations) otherUser(s *v1alpha1.AgenticSession, claim string) (name string, uid types.UID) {
	w.claims.Each(func(key types.NamespacedName, other types.UID, reserved string) bool {
		if key.Namespace == s.Namespace && reserved == claim && other != s.UID {
			name, uid = key.Name, other
		}
		return name == ""
	})
	return name, uid
}

// releaseUnused releases the workspace of a session without an open attempt, and of an
// earlier session with its name.
func (w *workspaceReservations) releaseUnused(s *v1alpha1.AgenticSession) {
	if _, reserved := w.claims.Get(s); !reserved || s.Status.Attempt.JobName == "" {
		w.forget(client.ObjectKeyFromObject(s))
	}
}

func (w *workspaceReservations) forget(key types.NamespacedName) { w.claims.Forget(key) }
