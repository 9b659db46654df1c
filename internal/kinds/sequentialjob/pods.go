package sequentialjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/internal/decision"
)

const maxMessageBytes = 256

func hasStartedContainer(pods []corev1.Pod) bool {
	for i := range pods {
		for _, status := range containerStatuses(&pods[i]) {
			if status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
				return true
			}
		}
	}
	return false
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

// failureMessage returns why the newest failed Pod failed; empty if unknown.
func failureMessage(pods []corev1.Pod, step string) string {
	pod := newestPod(pods, corev1.PodFailed)
	if pod == nil {
		return ""
	}
	if terminated := terminatedState(pod, step); terminated != nil && terminated.ExitCode != 0 {
		return exitMessage(step, terminated)
	}
	for _, status := range containerStatuses(pod) {
		if terminated := status.State.Terminated; terminated != nil && terminated.ExitCode != 0 {
			return exitMessage(status.Name, terminated)
		}
	}
	return decision.FormatReason(pod.Status.Reason, pod.Status.Message) // evicted, preempted, or its node was lost
}

// exitCode returns the exit code of the step's container in its newest failed Pod; nil if unknown.
func exitCode(pods []corev1.Pod, step string) *int32 {
	pod := newestPod(pods, corev1.PodFailed)
	if pod == nil {
		return nil
	}
	if terminated := terminatedState(pod, step); terminated != nil {
		return &terminated.ExitCode
	}
	return nil
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

func terminatedState(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status.State.Terminated
		}
	}
	return nil
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
