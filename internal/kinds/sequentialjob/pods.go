package sequentialjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/internal/decision"
)

const maxMessageBytes = 256

// hasStarted reports whether the step's own container started in the Pod. Init containers and sidecars do not count.
func hasStarted(pod *corev1.Pod, step string) bool {
	status := containerStatus(pod, step)
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// waitingMessage returns why the Pods have not started; empty if unknown.
func waitingMessage(pods []corev1.Pod) string {
	for i := range pods {
		for _, status := range containerStatuses(&pods[i]) {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
				return decision.FormatReason(waiting.Reason, waiting.Message)
			}
		}
		for _, condition := range pods[i].Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return decision.FormatReason(condition.Reason, condition.Message)
			}
		}
	}
	return ""
}

// failureMessage returns why the newest failed Pod failed, if not because of the step's container; empty if unknown.
func failureMessage(pods []corev1.Pod) string {
	pod := newestPod(pods, corev1.PodFailed)
	if pod == nil {
		return ""
	}
	for _, status := range containerStatuses(pod) {
		if terminated := status.State.Terminated; terminated != nil && terminated.ExitCode != 0 {
			return exitMessage(status.Name, terminated)
		}
	}
	return decision.FormatReason(pod.Status.Reason, pod.Status.Message) // evicted, preempted, or its node was lost
}

func exitMessage(container string, terminated *corev1.ContainerStateTerminated) string {
	message := fmt.Sprintf("container %s exited with code %d", container, terminated.ExitCode)
	if terminated.Reason != "" && terminated.Reason != "Error" {
		message += " (" + terminated.Reason + ")"
	}
	if detail := strings.TrimSpace(terminated.Message); detail != "" {
		message += ": " + detail
	}
	return message
}

// containerStatus returns the status of a container; the zero value without one.
func containerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func terminatedState(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	return containerStatus(pod, container).State.Terminated
}

func newestPod(pods []corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	var newest *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == phase && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	return newest
}
