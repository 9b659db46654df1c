package sequentialjob

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// prepareWorkspace reports whether a Job of the step can be created now. If not, the workspace is created first, or the
// step waits for it, or the verdict is that it is lost. A Job is created only if the claim's UID is recorded and the
// claim is not being deleted.
func (e *evaluation) prepareWorkspace(step *v1alpha1.StepStatus, refusal *decision.Refusal) (canUse bool, verdict stepVerdict) {
	name := WorkspaceName(e.SequentialJob)
	claim, read := e.Answers.Claims[name]
	if !read {
		e.decision.Question = &Question{Claim: name}
		return false, stepVerdict{}
	}
	loss := workspaceLoss(e.SequentialJob, e.status.Workspace.UID, claim)
	// A Job of an earlier attempt or of another step used the workspace, perhaps in an earlier run whose outcomes are
	// kept.
	isUsed := step.Attempt > 1 || findStepWhere(e.status.Steps, func(other *v1alpha1.StepStatus) bool {
		return other.Name != step.Name && other.JobUID != ""
	}) != nil
	if loss != "" && isUsed {
		return false, e.loseWorkspace(step, loss)
	}
	switch {
	case claim == nil:
		e.replaceWorkspace("", loss)
		e.decision.Workspace = workspaceClaim(e.SequentialJob)
		if refusal != nil {
			step.Phase, e.blockedBy = v1alpha1.StepStarting, refusal
		} else {
			e.timer.RequeueWithin(time.Millisecond) // the next decision records the claim's UID
		}
		return false, stepVerdict{}
	case !decision.WasCreatedFor(e.SequentialJob, claim, v1alpha1.LabelSequentialJobUID) && claim.UID != e.status.Workspace.UID:
		step.Phase = v1alpha1.StepStarting
		e.blockedBy = decision.NameTaken(decision.Refusal{Kind: "PersistentVolumeClaim", Name: name}, "SequentialJob")
		return false, stepVerdict{}
	case !claim.DeletionTimestamp.IsZero():
		e.waitForDeletedWorkspace(step, name)
		return false, stepVerdict{}
	}
	e.replaceWorkspace(claim.UID, loss)
	return true, stepVerdict{}
}

// waitForDeletedWorkspace waits until a claim that is being deleted no longer exists. It exists as long as any Pod that
// uses it, even if the Pod has ended. If the spec allows a restart, the operator deletes the Jobs of earlier runs, with
// their Pods.
func (e *evaluation) waitForDeletedWorkspace(step *v1alpha1.StepStatus, name string) {
	e.reportBlocked(step, v1alpha1.StepStarting, &startProblem{decision.Problem{
		Reason:  v1alpha1.ReasonWorkspaceTerminating,
		Message: fmt.Sprintf("PersistentVolumeClaim %s is being deleted, and exists as long as a Pod that uses it", name),
	}, "delete these Pods, including finished ones"})
	if e.spec.Workspace.OnLost != v1alpha1.LostWorkspaceRecreate {
		return
	}
	for _, job := range e.Jobs {
		if job.Annotations[v1alpha1.AnnotationRun] != strconv.Itoa(int(step.Run)) && !e.keepsForArchive(job) {
			e.deleteJob(job)
		}
	}
}

// replaceWorkspace records the UID of the claim that the run starts with. A rerun from the first step starts with an
// empty workspace if the previous run's was lost.
func (e *evaluation) replaceWorkspace(uid types.UID, loss string) {
	if e.status.Workspace.UID != "" && loss != "" {
		e.decision.Events = append(e.decision.Events, decision.WarningEvent(v1alpha1.EventWorkspaceLost, actionRun,
			loss+"; the run starts with another workspace, because no step of it has run"))
	}
	e.status.Workspace = v1alpha1.ClaimStatus{}
	if uid != "" {
		e.status.Workspace = v1alpha1.ClaimStatus{ClaimRef: v1alpha1.LocalReference{Name: WorkspaceName(e.SequentialJob)}, UID: uid}
	}
}

// loseWorkspace fails the step, or restarts the run if the spec allows it and steps without finally remain.
func (e *evaluation) loseWorkspace(step *v1alpha1.StepStatus, loss string) stepVerdict {
	if e.spec.Workspace.OnLost != v1alpha1.LostWorkspaceRecreate || IsFinally(e.spec, step.Name) {
		return stepVerdict{
			phase: v1alpha1.StepFailed, reason: v1alpha1.ReasonWorkspaceLost,
			message: loss + "; rerun from Start to run all steps with an empty workspace",
		}
	}
	e.decision.Events = append(e.decision.Events, decision.WarningEvent(v1alpha1.EventWorkspaceLost, actionRun,
		loss+"; all steps run again with an empty workspace"))
	// The start time is kept, so that the run's deadline limits all restarts together.
	e.status.Run++
	e.status.Steps = mergeSteps(e.spec, nil)
	e.status.Workspace = v1alpha1.ClaimStatus{}
	e.setCondition(v1alpha1.ConditionSpecAccepted, specValidity(e.SequentialJob))
	e.timer.RequeueWithin(time.Millisecond) // the next decision admits the run
	return stepVerdict{}
}

// workspaceLoss returns why the workspace of earlier steps is lost; empty if it is not. An older operator did not
// record the UID of the claim.
func workspaceLoss(sj *v1alpha1.SequentialJob, recorded types.UID, claim *metav1.PartialObjectMetadata) string {
	loss := ""
	switch {
	case claim == nil:
		loss = "no longer exists"
	case recorded != "" && claim.UID != recorded,
		recorded == "" && !decision.WasCreatedFor(sj, claim, v1alpha1.LabelSequentialJobUID):
		loss = "was replaced by another one"
	case !claim.DeletionTimestamp.IsZero():
		loss = "is being deleted"
	default:
		return ""
	}
	return fmt.Sprintf("PersistentVolumeClaim %s with the workspace %s", WorkspaceName(sj), loss)
}

// workspaceClaim returns the claim for spec.workspace, or nil.
//
// A retained claim has no owner reference, so that the garbage collector keeps it; a label
// identifies its SequentialJob.
func workspaceClaim(sj *v1alpha1.SequentialJob) *corev1.PersistentVolumeClaim {
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      WorkspaceName(sj),
			Namespace: sj.Namespace,
			Labels:    childLabels(sj, "workspace"),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{workspace.AccessMode},
			StorageClassName: workspace.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: ptr.Deref(workspace.Size, resource.Quantity{})},
			},
		},
	}
	if workspace.Retention != v1alpha1.WorkspaceRetain {
		claim.OwnerReferences = decision.ControllerReferences("SequentialJob", sj)
	}
	return claim
}
