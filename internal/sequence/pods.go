package sequence

import (
	"fmt"
	"strings"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	maxMessage = 256
	maxOutput  = 4096
)

// podsHaveStarted reports whether the Job's own counters prove that a Pod started. When
// they do not, a Pod may still have: one with a readiness probe is not ready at once.
func podsHaveStarted(job *batchv1.Job) bool {
	return job.Status.Succeeded > 0 || job.Status.Failed > 0 || (job.Status.Ready != nil && *job.Status.Ready > 0)
}

// anyContainerStarted reports whether a container of any Pod runs or ran.
func anyContainerStarted(pods []corev1.Pod) bool {
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

// waitingMessage says what keeps the Pods from starting.
func waitingMessage(pods []corev1.Pod) string {
	for i := range pods {
		for _, status := range containerStatuses(&pods[i]) {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
				return joinReason(waiting.Reason, waiting.Message)
			}
		}
		for _, condition := range pods[i].Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return joinReason(condition.Reason, condition.Message)
			}
		}
	}
	return ""
}

func joinReason(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// failureMessage tells how the newest failed Pod ended, empty when that is not known.
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
	return joinReason(pod.Status.Reason, pod.Status.Message) // evicted, preempted, node gone
}

func exitMessage(container string, terminated *corev1.ContainerStateTerminated) string {
	message := fmt.Sprintf("container %s exited with code %d", container, terminated.ExitCode)
	if terminated.Reason != "" && terminated.Reason != "Error" {
		message += " (" + terminated.Reason + ")"
	}
	if said := strings.TrimSpace(terminated.Message); said != "" {
		message += ": " + said
	}
	return message
}

// terminationMessage is what the newest successful Pod of the step left as its output,
// without the newlines at its end, as a shell's $(command) would take it.
func terminationMessage(pods []corev1.Pod, step string) string {
	pod := newestPod(pods, corev1.PodSucceeded)
	if pod == nil {
		return ""
	}
	if terminated := terminatedState(pod, step); terminated != nil {
		return truncate(strings.TrimRight(terminated.Message, "\n"), maxOutput)
	}
	return ""
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

// shorten cuts a message to what a status holds, marking the cut.
func shorten(message string) string {
	const mark = "..."
	if utf8.RuneCountInString(message) <= maxMessage {
		return message
	}
	runes := []rune(message)
	return string(runes[:maxMessage-len(mark)]) + mark
}

// truncate cuts text to at most limit bytes without splitting a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
