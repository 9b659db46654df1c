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

// workspaces reads and changes the claims of workspaces. It remembers which sessions this process started in a workspace: until
// the cache shows them, two sessions with the same parent would both find its workspace free.
type workspaces struct {
	kube.Clients

	// mu is held from the check for another user to the reservation.
	mu sync.Mutex
	// claims are the names of reserved claims, by session.
	claims *kube.Store[string]
}

func newWorkspaces(clients kube.Clients) *workspaces {
	return &workspaces{Clients: clients, claims: kube.NewStore[string]()}
}

// reserve reserves the workspace of the session's status, unless another session has reserved it.
func (w *workspaces) reserve(s *v1alpha1.AgenticSession) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, _ := w.otherUser(s, s.Status.Workspace.ClaimRef.Name); name != "" {
		return false
	}
	w.claims.Set(s, s.Status.Workspace.ClaimRef.Name)
	return true
}

// otherUser returns another session that reserved the claim; an empty name if none did.
func (w *workspaces) otherUser(s *v1alpha1.AgenticSession, claim string) (name string, uid types.UID) {
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
func (w *workspaces) releaseUnused(s *v1alpha1.AgenticSession) {
	if _, reserved := w.claims.Get(s); !reserved || s.Status.Attempt.JobName == "" {
		w.forget(client.ObjectKeyFromObject(s))
	}
}

func (w *workspaces) forget(key types.NamespacedName) { w.claims.Forget(key) }

// observe reads the session's parent, and finds another session that runs in the same workspace.
func (w *workspaces) observe(ctx context.Context, observation *agenticsession.Observation) error {
	s := observation.Session
	claim := s.Status.Workspace.ClaimRef.Name
	if s.Spec.ContinueFrom != nil {
		var err error
		if observation.Parent, err = kube.GetIfExists(ctx, w.Client, s.Namespace, s.Spec.ContinueFrom.Name, &v1alpha1.AgenticSession{}); err != nil {
			return err
		}
		if observation.Parent != nil && claim == "" {
			claim = observation.Parent.Status.Workspace.ClaimRef.Name
		}
	}
	if claim == "" {
		return nil
	}
	if name, uid := w.otherUser(s, claim); name != "" {
		// The reservation of a deleted session does not count: it may be released after the last event that requeues this session.
		other, err := kube.GetIfExists(ctx, w.Client, s.Namespace, name, &v1alpha1.AgenticSession{})
		if err != nil {
			return err
		}
		if other != nil && other.UID == uid {
			observation.WorkspaceUser = name
			return nil
		}
	}
	var sharers v1alpha1.AgenticSessionList
	if err := w.Client.List(ctx, &sharers, client.InNamespace(s.Namespace), client.MatchingFields{claimIndex: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the sessions of workspace %s: %w", claim, err)
	}
	for i := range sharers.Items {
		if other := &sharers.Items[i]; other.UID != s.UID && other.Status.Attempt.JobName != "" {
			observation.WorkspaceUser = other.Name
		}
	}
	return nil
}

// listMountingPods lists the Pods of a namespace that mount a claim and have not ended. It does not use a cache: the
// operator caches only the Pods of sessions, and any Pod can mount the claim.
func (w *workspaces) listMountingPods(ctx context.Context, namespace, claim string) ([]corev1.Pod, error) {
	var mounting []corev1.Pod
	for next := ""; ; {
		var page corev1.PodList
		if err := w.Live.List(ctx, &page, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: notEnded}, client.Limit(podsPerPage), client.Continue(next)); err != nil {
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

// reservePod reserves a claim for a Pod, only in the version that was read, and then removes the Pod's gate. Both
// can be repeated.
func (w *workspaces) reservePod(ctx context.Context, reservation *agenticsession.WorkspaceReservation) error {
	claim, pod := reservation.Claim, reservation.Pod
	if claim.Annotations[agenticsession.AnnotationWorkspacePod] != string(pod.UID) {
		if err := patchObject(ctx, w.Client, claim, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
			"annotations": map[string]any{agenticsession.AnnotationWorkspacePod: pod.UID},
		}}); err != nil {
			return fmt.Errorf("reserving PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	metadata := newMetadata(corev1.SchemeGroupVersion.WithKind("Pod"))
	metadata.Namespace, metadata.Name = pod.Namespace, pod.Name
	if err := patchObject(ctx, w.Client, metadata, types.StrategicMergePatchType, map[string]any{
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

func patchObject(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, kind types.PatchType, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return c.Patch(ctx, object.DeepCopy(), client.RawPatch(kind, raw), fieldOwner)
}

// keepClaim removes the sessions from the owners of a claim, only in the version that was read.
func (w *workspaces) keepClaim(ctx context.Context, claim *metav1.PartialObjectMetadata) error {
	if err := patchObject(ctx, w.Client, claim, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "ownerReferences": agenticsession.KeptOwners(claim),
	}}); err != nil {
		return fmt.Errorf("keeping PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// addClaimOwner makes the session an owner, but not the controller, of its parent's claim.
func (w *workspaces) addClaimOwner(ctx context.Context, s *v1alpha1.AgenticSession, claim *metav1.PartialObjectMetadata) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(claimKind)
	u.SetNamespace(s.Namespace)
	u.SetName(claim.Name)
	u.SetUID(claim.UID) // apply must not create another claim
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgenticSession", Name: s.Name, UID: s.UID,
	}})
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner+"-"+client.FieldOwner(s.UID), client.ForceOwnership); err != nil {
		return fmt.Errorf("becoming an owner of PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	return nil
}
