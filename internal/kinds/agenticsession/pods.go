package agenticsession

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// newestPod returns the newest Pod of the Job with this UID, or nil. A Job of an earlier run may have had the same
// name.
func newestPod(pods []corev1.Pod, job types.UID) *corev1.Pod {
	var newest *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		controller := metav1.GetControllerOf(pod)
		if controller == nil || controller.UID != job {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	return newest
}

// findContainer returns the status of a container of any type, or nil. The Pod may be nil, here and below.
func findContainer(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

func runnerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	return findContainer(pod, v1alpha1.RunnerContainer)
}

func hasRun(pod *corev1.Pod) bool {
	c := runnerStatus(pod)
	return c != nil && hasContainerStarted(*c)
}

func hasContainerStarted(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil
}

func runnerTermination(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := runnerStatus(pod); c != nil {
		return c.State.Terminated
	}
	return nil
}

func runnerExitCode(pod *corev1.Pod) *int32 {
	if termination := runnerTermination(pod); termination != nil {
		return &termination.ExitCode
	}
	return nil
}

func findPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) *corev1.PodCondition {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind && c.Status == status {
			return c
		}
	}
	return nil
}

// podDisruption returns why the Pod was terminated before its runner ended; nil if it was not. Callers have excluded that the operator
// stopped the session by deleting its Job, and that the Job exceeded its deadline.
func podDisruption(pod *corev1.Pod) *decision.Problem {
	if pod == nil {
		return nil
	}
	target, termination := findPodCondition(pod, corev1.DisruptionTarget, corev1.ConditionTrue), runnerTermination(pod)
	switch {
	case pod.Status.Reason == v1alpha1.ReasonEvicted:
		return &decision.Problem{Reason: v1alpha1.ReasonEvicted, Message: pod.Status.Message}
	case target != nil && (target.Reason == decision.DeletionByTaintManager || target.Reason == "DeletionByPodGC"):
		return &decision.Problem{Reason: v1alpha1.ReasonPodLost, Message: decision.FormatReason(target.Reason, target.Message)}
	case target != nil:
		return &decision.Problem{Reason: v1alpha1.ReasonEvicted, Message: decision.FormatReason(target.Reason, target.Message)}
	case pod.DeletionTimestamp == nil:
		return nil
	case termination != nil && termination.FinishedAt.Time.Before(decision.DeletionRequestTime(pod)):
		return nil // a runner that ends in the second of the deletion may have been terminated by it
	}
	return &decision.Problem{Reason: v1alpha1.ReasonPodDeleted, Message: "Pod " + pod.Name + " was deleted before its runner ended"}
}

// startFailureReasons maps the reasons of waiting containers that do not start by themselves to the reasons that the
// session reports.
var startFailureReasons = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"ImageInspectError":          v1alpha1.ReasonImagePull,
	"RegistryUnavailable":        v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonConfigError,
	"CreateContainerError":       v1alpha1.ReasonConfigError,
	"RunContainerError":          v1alpha1.ReasonConfigError,
	"CrashLoopBackOff":           v1alpha1.ReasonConfigError,
}

// containerStartProblem returns why a container of the Pod cannot start; nil if none fails. Sidecars count too, because
// the runner starts after them.
func containerStartProblem(pod *corev1.Pod) *decision.Problem {
	if pod == nil {
		return nil
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		waiting := statuses[i].State.Waiting
		if waiting == nil || startFailureReasons[waiting.Reason] == "" {
			continue
		}
		return &decision.Problem{
			Reason:  startFailureReasons[waiting.Reason],
			Message: "container " + statuses[i].Name + ": " + decision.FormatReason(waiting.Reason, waiting.Message),
		}
	}
	return nil
}

// podSandboxProblem returns a problem while the node prepares the Pod's Secrets, volumes and network. Every Pod is in
// this state for a moment, so it is a failure only if it lasts. Images are pulled later. Only the kubelet's events name
// the cause. The condition of a Pod that ends becomes False, too: the node has prepared each Pod whose containers started.
func podSandboxProblem(pod *corev1.Pod) *decision.Problem {
	if findPodCondition(pod, corev1.PodReadyToStartContainers, corev1.ConditionFalse) == nil {
		return nil
	}
	if slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), hasContainerStarted) {
		return nil
	}
	return &decision.Problem{
		Reason: v1alpha1.ReasonConfigError,
		Message: "the node cannot prepare Pod " + pod.Name + " for its containers: " +
			"check the Pod's events for a missing Secret or volume",
	}
}

// InteractivePort returns the port on which the runner in a Pod accepts messages; 0 if it accepts none.
func InteractivePort(pod *corev1.Pod) int32 {
	if !pod.DeletionTimestamp.IsZero() || findPodCondition(pod, corev1.PodReady, corev1.ConditionTrue) == nil {
		return 0
	}
	return messagePort(pod.Spec.Containers)
}

// messagePort returns the port for messages among those of the containers; 0 without such a port.
func messagePort(containers []corev1.Container) int32 {
	for i := range containers {
		for _, port := range containers[i].Ports {
			if port.Name == sessionPortName {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// ContainersToCache returns what decisions read of the containers of a session's Job: the port for messages.
func ContainersToCache(containers []corev1.Container) []corev1.Container {
	port := messagePort(containers)
	if port == 0 {
		return nil
	}
	return []corev1.Container{{Ports: []corev1.ContainerPort{{Name: sessionPortName, ContainerPort: port}}}}
}
