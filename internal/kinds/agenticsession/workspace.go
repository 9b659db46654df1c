package agenticsession

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// WorkspaceGate is the scheduling gate of Pods with a persistent workspace. A Pod that the Job controller creates on
// stale data after its Job was deleted never runs, because nothing removes its gate.
const WorkspaceGate = v1alpha1.Prefix + "workspace"

// AnnotationWorkspacePod of a claim is the UID of the Pod that the claim is reserved for. It is written before this
// Pod's gate is removed, and only over the version of the claim that was read before all Pods that mount it were
// listed.
const AnnotationWorkspacePod = v1alpha1.Prefix + "workspace-pod"

// WorkspaceReservation lets a Pod run in a workspace.
type WorkspaceReservation struct {
	// Claim is reserved for the Pod only if it still has this version.
	Claim *metav1.PartialObjectMetadata
	// Pod whose gate is removed after the reservation.
	Pod *corev1.Pod
}

// MountsClaim reports whether a Pod mounts a claim, or will.
func MountsClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim
	})
}

func isGated(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == WorkspaceGate })
}

// workspace is what is known about the workspace of the next attempt.
type workspace struct {
	status v1alpha1.ClaimStatus
	// result of the parent, whose conversation the first attempt continues; nil if it continues none.
	result *v1alpha1.SessionResult
	// share is the claim of the parent, of which the session is not an owner yet; nil if it is.
	share *metav1.PartialObjectMetadata
	// obstacle to the use of the workspace, or a question to answer first; nil for neither.
	obstacle *obstacle
	question *Question
}

// resolveWorkspace finds the claim of the session's workspace and verifies that the session's earlier attempts used it.
// The claim of a session without any attempt does not exist yet.
func resolveWorkspace(f *facts, status *v1alpha1.AgenticSessionStatus) workspace {
	w, name := workspace{status: status.Workspace}, claimName(f, status)
	if name == "" || f.spec.ContinueFrom == nil && status.Attempt.Attempt == 0 && len(status.Attempts) == 0 {
		return w
	}
	claim, answered := f.Answers.Claims[name]
	if !answered {
		w.question = &Question{Claim: name}
		return w
	}
	s, parent, recorded := f.Session, f.Parent, w.status.UID
	isGone := claim == nil || !claim.DeletionTimestamp.IsZero()
	switch {
	case f.spec.ContinueFrom == nil:
		return w.ofOwnClaim(f, status, name, claim)
	case recorded != "" && (isGone || claim.UID != recorded):
		w.obstacle = lostWorkspace(f, recorded, name, claim)
		return w
	case recorded != "":
	case isGone && w.status.ClaimRef.Name == "" && !isSessionFinished(parent):
		return workspace{} // the claim may be created later: the parent is reported as not finished
	case isGone, !ownsClaim(s, claim) && !ownsClaim(parent, claim):
		problem := "does not belong to the continued session"
		if isGone {
			problem = "no longer exists"
		}
		w.obstacle, _ = missing(v1alpha1.ReasonWorkspaceNotFound,
			"PersistentVolumeClaim "+name+" "+problem+"; continue another session, or create one without continueFrom")
		return w
	}
	// As soon as the claim is found, this session becomes an owner too, even while it waits, so that the workspace is not
	// deleted with the parent. A claim that no session owns is kept: with an owner, it would be deleted with this session.
	w.status.ClaimRef.Name, w.status.UID = name, claim.UID
	if isParentOf(f, &w.status) && !hasAttempted(status) && parent.Status.Result != nil && parent.Status.Result.SDKSessionID != "" {
		w.result = &v1alpha1.SessionResult{SDKSessionID: parent.Status.Result.SDKSessionID}
	}
	if !isClaimOwner(s.UID, claim) && !isKept(claim) {
		w.share = claim
	}
	return w
}

// ofOwnClaim returns what is known about the claim that the session created. If a claim of another owner has its name, the conflict is
// reported when the session creates its claim.
func (w workspace) ofOwnClaim(f *facts, status *v1alpha1.AgenticSessionStatus, name string, claim *metav1.PartialObjectMetadata) workspace {
	recorded := w.status.UID
	wasUsed := recorded != "" || slices.ContainsFunc(status.Attempts, func(run v1alpha1.SessionAttempt) bool { return run.StartTime != nil })
	isOurs := claim != nil && decision.WasCreatedFor(f.Session, claim, LabelSessionUID)
	switch {
	case claim == nil && !wasUsed:
	case claim == nil, !claim.DeletionTimestamp.IsZero() && (isOurs || claim.UID == recorded), recorded != "" && claim.UID != recorded:
		if w.obstacle = lostWorkspace(f, recorded, name, claim); w.obstacle == nil {
			w.status.UID = ""
		}
	case isOurs:
		w.status.UID = claim.UID
	}
	return w
}

// claimName returns the name of the claim that the next attempt uses; empty if it uses none, or if the session may not
// use its parent's claim.
func claimName(f *facts, status *v1alpha1.AgenticSessionStatus) string {
	switch {
	case status.Workspace.ClaimRef.Name != "":
		return status.Workspace.ClaimRef.Name
	case f.spec.ContinueFrom != nil && f.Parent != nil && f.Parent.DeletionTimestamp.IsZero() && UserOf(f.Parent) == UserOf(f.Session):
		return f.Parent.Status.Workspace.ClaimRef.Name
	case f.spec.ContinueFrom == nil && f.settings != nil && f.settings.persistent:
		return ClaimName(f.Session.Name)
	}
	return ""
}

// isParentOf reports whether the session that continueFrom names has this claim. A session that was created later with
// the same name does not. An older operator did not record the UID of the claim.
func isParentOf(f *facts, claim *v1alpha1.ClaimStatus) bool {
	parent := f.Parent
	switch {
	case parent == nil || !parent.DeletionTimestamp.IsZero() || UserOf(parent) != UserOf(f.Session):
		return false
	case parent.Status.Workspace.UID == "":
		return parent.Status.Workspace.ClaimRef.Name == claim.ClaimRef.Name
	}
	return parent.Status.Workspace.UID == claim.UID
}

// lostWorkspace returns the obstacle of a session that lost its workspace; nil if the session accepts an empty workspace, which can be
// created when the old claim no longer exists.
func lostWorkspace(f *facts, recorded types.UID, name string, claim *metav1.PartialObjectMetadata) *obstacle {
	what := "no longer exists"
	switch {
	case claim != nil && claim.UID != recorded && recorded != "":
		what = "was replaced by another one"
	case claim != nil:
		what = "is being deleted"
	}
	lost := &obstacle{Problem: decision.Problem{
		Reason: v1alpha1.ReasonWorkspaceLost, Message: "PersistentVolumeClaim " + name + " with the workspace of earlier attempts " + what,
	}}
	switch startsEmpty := f.spec.ContinueFrom == nil && f.spec.Workspace != nil && f.spec.Workspace.OnLost == v1alpha1.LostWorkspaceRecreate; {
	case !startsEmpty:
		lost.isFatal = true
	case claim != nil && !claim.DeletionTimestamp.IsZero():
		lost.Message += ", and exists as long as a Pod that uses it; delete these Pods, including finished ones"
		lost.retry = f.retryInterval()
	default:
		return nil
	}
	return lost
}

// ownsClaim reports whether a session created a claim, is one of its owners, or has used it. A claim that is kept has only the label of
// the session that created it.
func ownsClaim(s *v1alpha1.AgenticSession, claim metav1.Object) bool {
	return s != nil && (claim.GetLabels()[LabelSessionUID] == string(s.UID) || isClaimOwner(s.UID, claim) || s.Status.Workspace.UID == claim.GetUID())
}

func isClaimOwner(uid types.UID, claim metav1.Object) bool {
	return slices.ContainsFunc(claim.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

func hasAttempted(status *v1alpha1.AgenticSessionStatus) bool {
	return status.Attempt.Attempt > 0 || slices.ContainsFunc(status.Attempts, func(run v1alpha1.SessionAttempt) bool { return run.JobName != "" })
}

func isSessionFinished(s *v1alpha1.AgenticSession) bool {
	return s != nil && (s.Status.Phase == v1alpha1.SessionCompleted || s.Status.Phase == v1alpha1.SessionFailed)
}

// checkWorkspaceFree verifies, before a Job is created, that no Pod mounts the claim.
func checkWorkspaceFree(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if status.Workspace.UID == "" { // the claim is created by this attempt
		return nil, nil
	}
	name := claimName(f, status)
	pods, answered := f.Answers.Mounts[name]
	if !answered {
		return nil, &Question{Mounts: name}
	}
	return podObstacle(f, pods, func(*corev1.Pod) bool { return true }), nil
}

// reserveWorkspace returns the reservation with which the open attempt's Pod runs once its workspace is free. Of several gated Pods, the
// first with a reservation runs: a reservation succeeds only if the claim has not changed since before the list of Pods, and the Pod
// that the claim names counts as running until it has ended.
func reserveWorkspace(f *facts, status *v1alpha1.AgenticSessionStatus, pod *corev1.Pod) (*WorkspaceReservation, *obstacle, *Question) {
	name := claimName(f, status)
	claim := f.Answers.Claims[name]
	if claim == nil || claim.UID != status.Workspace.UID {
		return nil, &obstacle{retry: f.retryInterval(), Problem: decision.Problem{
			Reason: v1alpha1.ReasonWorkspaceNotFound, Message: "PersistentVolumeClaim " + name + " does not exist yet",
		}}, nil
	}
	pods, answered := f.Answers.Mounts[name]
	if !answered {
		return nil, nil, &Question{Mounts: name}
	}
	holder := types.UID(claim.Annotations[AnnotationWorkspacePod])
	isUser := func(other *corev1.Pod) bool { return other.UID != pod.UID && (!isGated(other) || other.UID == holder) }
	if found := podObstacle(f, pods, isUser); found != nil {
		return nil, found, nil
	}
	return &WorkspaceReservation{Claim: claim, Pod: pod}, nil, nil
}

// podObstacle returns the obstacle of the first of the Pods that mount the workspace which uses it and has not ended; nil without such a Pod.
// It has no time limit: the Pod does not depend on this session. The operator watches only Pods of sessions.
func podObstacle(f *facts, pods []corev1.Pod, isUser func(*corev1.Pod) bool) *obstacle {
	for i := range pods {
		pod := &pods[i]
		if decision.HasPodEnded(pod) || !isUser(pod) {
			continue
		}
		o := &obstacle{Problem: decision.Problem{Reason: v1alpha1.ReasonWorkspaceInUse, Message: "Pod " + pod.Name + " mounts the workspace"}}
		if name := pod.Labels[LabelSession]; name != "" {
			o.Message = fmt.Sprintf("Pod %s of AgenticSession %s has not ended yet", pod.Name, name)
		} else {
			o.retry = f.retryInterval()
		}
		return o
	}
	return nil
}

// workspaceToKeep returns the claim of a session at rest that must outlive the session, because it may have the only copy of work. The
// claim stays until a user deletes it, also if a later attempt pushes the work.
func workspaceToKeep(f *facts, status *v1alpha1.AgenticSessionStatus) (*metav1.PartialObjectMetadata, *Question) {
	name := status.Workspace.ClaimRef.Name
	if name == "" || status.Workspace.UID == "" || status.Attempt.JobName != "" || !isWorkMissing(status) {
		return nil, nil
	}
	claim, answered := f.Answers.Claims[name]
	switch {
	case !answered:
		return nil, &Question{Claim: name}
	case claim == nil, claim.UID != status.Workspace.UID, !claim.DeletionTimestamp.IsZero(), isKept(claim):
		return nil, nil
	}
	return claim, nil
}

// isKept reports whether nothing deletes the claim with a session.
func isKept(claim *metav1.PartialObjectMetadata) bool {
	return len(KeptOwners(claim)) == len(claim.OwnerReferences)
}

// KeptOwners returns the owners of a claim without the sessions: nothing deletes the claim with a session then.
func KeptOwners(claim *metav1.PartialObjectMetadata) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(owner metav1.OwnerReference) bool { return owner.Kind == "AgenticSession" })
}
