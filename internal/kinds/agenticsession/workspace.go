package agenticsession

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

// workspaceState reports whether an attempt can use its workspace.
type workspaceState struct {
	// question to answer first, or nil.
	question *Question
	// usable means that the attempt can use the workspace. Otherwise its run failed, or obstacle says why it waits.
	usable bool
}

var workspaceUsable = workspaceState{usable: true}

// resolveWorkspace finds the claim of the session's workspace and verifies that the session's earlier attempts used it.
// The claim of a session without any attempt does not exist yet.
func (e *evaluation) resolveWorkspace() workspaceState {
	name, isFirst := e.claimName(), e.status.Attempt.Attempt == 0 && len(e.status.Attempts) == 0
	if name == "" || e.spec.ContinueFrom == nil && isFirst {
		return workspaceUsable
	}
	claim, answered := e.observation.Answers.Claims[name]
	if !answered {
		return workspaceState{question: &Question{Claim: name}}
	}
	if e.spec.ContinueFrom != nil {
		return e.resolveSharedClaim(name, claim)
	}
	return e.resolveOwnClaim(name, claim)
}

// claimName returns the name of the claim that the next attempt uses; empty if it uses none, or if the session may not
// use its parent's claim.
func (e *evaluation) claimName() string {
	o := &e.observation
	switch {
	case e.status.Workspace.ClaimRef.Name != "":
		return e.status.Workspace.ClaimRef.Name
	case e.spec.ContinueFrom != nil && o.Parent != nil && o.Parent.DeletionTimestamp.IsZero() && userIDOf(o.Parent) == userIDOf(o.Session):
		return o.Parent.Status.Workspace.ClaimRef.Name
	case e.spec.ContinueFrom == nil && e.settings != nil && e.settings.persistent:
		return ClaimName(o.Session.Name)
	}
	return ""
}

// resolveSharedClaim verifies the claim of the parent. As soon as the claim is found, this session becomes an owner
// too, even while it waits, so that the workspace is not deleted with the parent.
func (e *evaluation) resolveSharedClaim(name string, claim *metav1.PartialObjectMetadata) workspaceState {
	s, parent, recorded := e.observation.Session, e.observation.Parent, e.status.Workspace.UID
	isGone := claim == nil || !claim.DeletionTimestamp.IsZero()
	switch {
	case recorded != "" && (isGone || claim.UID != recorded):
		return e.loseWorkspace(name, claim)
	case recorded != "":
	case isGone && e.status.Workspace.ClaimRef.Name == "" && !isSessionFinished(parent):
		return workspaceUsable // the claim may be created later: the parent is reported as not finished
	case isGone:
		return e.waitForContinuedClaim(name, "no longer exists")
	case !ownsClaim(s, claim) && !ownsClaim(parent, claim):
		return e.waitForContinuedClaim(name, "does not belong to the continued session")
	}
	e.status.Workspace.ClaimRef.Name, e.status.Workspace.UID = name, claim.UID
	if isParentOf(&e.observation, &e.status) && !hasAttempted(&e.status) { // the first attempt continues its conversation
		if parent.Status.Result != nil && parent.Status.Result.SDKSessionID != "" {
			e.status.Result = &v1alpha1.SessionResult{SDKSessionID: parent.Status.Result.SDKSessionID}
		}
	}
	if !isClaimOwner(s.UID, claim) {
		e.decision.ShareClaim = claim
	}
	return workspaceUsable
}

// isParentOf reports whether the session that continueFrom names has the claim that the status records. A session that
// was created later with the same name does not. An older operator did not record the UID of the claim.
func isParentOf(o *Observation, status *v1alpha1.AgenticSessionStatus) bool {
	parent := o.Parent
	switch {
	case parent == nil || !parent.DeletionTimestamp.IsZero() || userIDOf(parent) != userIDOf(o.Session):
		return false
	case parent.Status.Workspace.UID == "":
		return parent.Status.Workspace.ClaimRef.Name == status.Workspace.ClaimRef.Name
	}
	return parent.Status.Workspace.UID == status.Workspace.UID
}

func (e *evaluation) waitForContinuedClaim(name, problem string) workspaceState {
	e.waitFor(v1alpha1.ReasonWorkspaceNotFound,
		"PersistentVolumeClaim "+name+" "+problem+"; continue another session, or create one without continueFrom", true)
	return workspaceState{}
}

// resolveOwnClaim verifies the claim that the session created. If a claim of another owner has its name, the conflict
// is reported when the session creates its claim.
func (e *evaluation) resolveOwnClaim(name string, claim *metav1.PartialObjectMetadata) workspaceState {
	recorded := e.status.Workspace.UID
	wasUsed := recorded != "" || slices.ContainsFunc(e.status.Attempts, func(run v1alpha1.SessionAttempt) bool { return run.StartTime != nil })
	isOurs := claim != nil && decision.WasCreatedFor(e.observation.Session, claim, LabelSessionUID)
	switch {
	case claim == nil && !wasUsed:
		return workspaceUsable
	case claim == nil, !claim.DeletionTimestamp.IsZero() && (isOurs || claim.UID == recorded):
		return e.loseWorkspace(name, claim)
	case claim.UID == recorded:
		return workspaceUsable
	case recorded != "":
		return e.loseWorkspace(name, claim)
	case isOurs:
		e.status.Workspace.UID = claim.UID
	}
	return workspaceUsable
}

// loseWorkspace fails the run, unless the session accepts an empty workspace, which can be created when the old claim
// no longer exists.
func (e *evaluation) loseWorkspace(name string, claim *metav1.PartialObjectMetadata) workspaceState {
	what := "no longer exists"
	switch {
	case claim != nil && claim.UID != e.status.Workspace.UID && e.status.Workspace.UID != "":
		what = "was replaced by another one"
	case claim != nil:
		what = "is being deleted"
	}
	lost := decision.Problem{Reason: v1alpha1.ReasonWorkspaceLost, Message: "PersistentVolumeClaim " + name + " with the workspace of earlier attempts " + what}
	startsEmpty := e.spec.ContinueFrom == nil && e.spec.Workspace != nil && e.spec.Workspace.OnLost == v1alpha1.LostWorkspaceRecreate
	switch {
	case !startsEmpty:
		e.failRun(lost)
		return workspaceState{}
	case claim != nil && !claim.DeletionTimestamp.IsZero():
		e.waitForWorkspace(lost)
		e.timer.RequeueWithin(e.retryInterval())
		return workspaceState{}
	}
	e.status.Workspace.UID = ""
	return workspaceUsable
}

// ownsClaim reports whether a session created a claim or is one of its owners. A retained claim has only the label of
// the session that created it.
func ownsClaim(s *v1alpha1.AgenticSession, claim metav1.Object) bool {
	return s != nil && (claim.GetLabels()[LabelSessionUID] == string(s.UID) || isClaimOwner(s.UID, claim))
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
func (e *evaluation) checkWorkspaceFree() workspaceState {
	if e.status.Workspace.UID == "" { // the claim is created by this attempt
		return workspaceUsable
	}
	name := e.claimName()
	pods, answered := e.observation.Answers.Mounts[name]
	if !answered {
		return workspaceState{question: &Question{Mounts: name}}
	}
	if user := findPod(pods, func(*corev1.Pod) bool { return true }); user != nil {
		e.waitForPod(user)
		return workspaceState{}
	}
	return workspaceUsable
}

// reserveWorkspace lets the open attempt's Pod run once its workspace is free. Of several gated Pods, the first with a
// reservation runs: a reservation succeeds only if the claim has not changed since before the list of Pods, and the Pod
// that the claim names counts as running until it has ended.
func (e *evaluation) reserveWorkspace() workspaceState {
	if !isGated(e.pod) || !e.pod.DeletionTimestamp.IsZero() || decision.HasPodEnded(e.pod) {
		return workspaceUsable
	}
	if state := e.resolveWorkspace(); !state.usable {
		if e.status.Attempt.JobName == "" { // the workspace is lost
			e.deleteJob(e.job)
		}
		return state
	}
	name := e.claimName()
	claim := e.observation.Answers.Claims[name]
	if claim == nil || claim.UID != e.status.Workspace.UID {
		e.waitForWorkspace(decision.Problem{Reason: v1alpha1.ReasonWorkspaceNotFound, Message: "PersistentVolumeClaim " + name + " does not exist yet"})
		e.timer.RequeueWithin(e.retryInterval())
		return workspaceState{}
	}
	pods, answered := e.observation.Answers.Mounts[name]
	if !answered {
		return workspaceState{question: &Question{Mounts: name}}
	}
	holder := types.UID(claim.Annotations[AnnotationWorkspacePod])
	user := findPod(pods, func(pod *corev1.Pod) bool { return pod.UID != e.pod.UID && (!isGated(pod) || pod.UID == holder) })
	if user != nil {
		e.waitForPod(user)
		return workspaceState{}
	}
	e.decision.ReserveWorkspace = &WorkspaceReservation{Claim: claim, Pod: e.pod}
	return workspaceUsable
}

func findPod(pods []corev1.Pod, condition func(pod *corev1.Pod) bool) *corev1.Pod {
	for i := range pods {
		if !decision.HasPodEnded(&pods[i]) && condition(&pods[i]) {
			return &pods[i]
		}
	}
	return nil
}

// waitForPod waits for a Pod that mounts the workspace. The operator watches only Pods of sessions.
func (e *evaluation) waitForPod(user *corev1.Pod) {
	message := "Pod " + user.Name + " mounts the workspace"
	if name := user.Labels[LabelSession]; name != "" {
		message = fmt.Sprintf("Pod %s of AgenticSession %s has not ended yet", user.Name, name)
	} else {
		e.timer.RequeueWithin(e.retryInterval())
	}
	e.waitForWorkspace(decision.Problem{Reason: v1alpha1.ReasonWorkspaceInUse, Message: message})
}

// waitForWorkspace waits without a time limit: the end of other Pods does not depend on this session.
func (e *evaluation) waitForWorkspace(problem decision.Problem) {
	e.waitFor(problem.Reason, problem.Message, false)
}

// retryInterval returns the time until the operator tries again to remove the cause of a condition: as long as the
// condition has been False, from minRetryInterval to maxRetryInterval.
func (e *evaluation) retryInterval() time.Duration {
	age := time.Duration(0)
	if c := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionBlocked); c != nil && c.Status == metav1.ConditionTrue {
		age = e.observation.Now.Sub(c.LastTransitionTime.Time)
	}
	return min(max(age, minRetryInterval), maxRetryInterval)
}
