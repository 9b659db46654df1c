package decision

import corev1 "k8s.io/api/core/v1"

const (
	// maxTerminationMessage is how much the kubelet reads of a container's termination message, from
	// its end, and maxPodTerminationMessages is what it divides equally among all containers of a
	// Pod, to cut each message at its end: MaxContainerTerminationMessageLength and
	// MaxPodTerminationMessageLogLength in the kubelet.
	maxTerminationMessage     = 4096
	maxPodTerminationMessages = 12288
)

// TerminationMessageLimit returns the length in bytes of the longest termination message that the
// kubelet reports for a Pod with this number of containers of all types, at least one. A message of
// this length may have been cut.
func TerminationMessageLimit(containers int) int {
	return min(maxTerminationMessage, maxPodTerminationMessages/containers)
}

// CountContainers returns the number of init, regular and ephemeral containers of a Pod.
func CountContainers(pod *corev1.PodSpec) int {
	return len(pod.InitContainers) + len(pod.Containers) + len(pod.EphemeralContainers)
}
