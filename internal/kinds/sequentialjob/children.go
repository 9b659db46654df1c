package sequentialjob

import (
	"fmt"
	"strings"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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

// readOutput returns the output of a step that succeeded: the termination message of its Pod, without trailing newlines, as in a
// shell's $(command). The Pod is nil if it is not known. It returns a problem if the output is not known exactly, or cannot be
// the value of an environment variable.
func readOutput(job *batchv1.Job, pod *corev1.Pod, step string) (output string, problem *decision.Problem) {
	if pod == nil {
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputLost, Message: "the step's Pod was deleted before its output was recorded" + explainTTL(job)}
	}
	terminated := terminatedState(pod, step)
	if terminated == nil {
		return "", &decision.Problem{Reason: v1alpha1.ReasonOutputLost, Message: fmt.Sprintf("Pod %s does not report how container %s ended", pod.Name, step)}
	}
	if problem := checkOutput(terminated.Message, &pod.Spec); problem != nil {
		return "", problem
	}
	return strings.TrimRight(terminated.Message, "\n"), nil
}

// explainTTL says that Kubernetes deletes the Job with its Pods, if someone set its time to live; the operator does not set it.
func explainTTL(job *batchv1.Job) string {
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		return fmt.Sprintf("; a policy of the cluster set ttlSecondsAfterFinished: %d of the Job", *ttl)
	}
	return ""
}

// checkOutput returns why an output cannot be passed on; nil if it can. The API server and its clients replace invalid
// UTF-8, so the original bytes are lost.
func checkOutput(message string, pod *corev1.PodSpec) *decision.Problem {
	limit := decision.TerminationMessageLimit(max(1, decision.CountContainers(pod)))
	mayBeCut := len(message) >= limit
	text := message
	if mayBeCut { // perhaps within a character
		text = strings.Trim(text, string(utf8.RuneError))
	}
	switch {
	case strings.ContainsRune(text, 0):
		return &decision.Problem{Reason: v1alpha1.ReasonOutputInvalid, Message: "the output contains a NUL byte; write text, for example in Base64"}
	case strings.ContainsRune(text, utf8.RuneError):
		return &decision.Problem{Reason: v1alpha1.ReasonOutputInvalid, Message: "the output is not valid UTF-8; write text, for example in Base64"}
	case mayBeCut:
		return &decision.Problem{Reason: v1alpha1.ReasonOutputTooLong, Message: fmt.Sprintf(
			"the output has %d bytes or more, and the rest is lost; write at most %d, or a file in a workspace", limit, limit-1)}
	}
	return nil
}

// outputsConfigMap returns the ConfigMap with the outputs recorded in the status; nil if no step of the spec has
// outputs, or none is recorded in the first run. A later run may need an empty ConfigMap, to remove the outputs of the
// run before.
func outputsConfigMap(sj *v1alpha1.SequentialJob, status *v1alpha1.SequentialJobStatus) *corev1.ConfigMap {
	hasOutputs := false
	data := map[string]string{}
	for i := range sj.Spec.Containers {
		step := &sj.Spec.Containers[i]
		if !step.Options().Outputs {
			continue
		}
		hasOutputs = true
		if recorded := findStep(status.Steps, step.Name); recorded != nil && recorded.Phase == v1alpha1.StepSucceeded {
			data[step.Name] = recorded.Output
		}
	}
	if !hasOutputs || (len(data) == 0 && status.Run == 1) {
		return nil
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            OutputsName(sj),
			Namespace:       sj.Namespace,
			Labels:          childLabels(sj, "outputs"),
			OwnerReferences: decision.ControllerReferences("SequentialJob", sj),
		},
		Data: data,
	}
}
