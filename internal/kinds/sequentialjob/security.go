package sequentialjob

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// restrictedUser is the user and group of Pods with the security profile Restricted, as in distroless images.
const restrictedUser = 65532

// restrictPod sets what the Pod Security Standard "restricted" requires, as far as the Pod does not say otherwise.
func restrictPod(pod *corev1.PodSpec) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	context := pod.SecurityContext
	setDefault(&context.RunAsNonRoot, true)
	setDefault(&context.RunAsUser, restrictedUser)
	setDefault(&context.RunAsGroup, restrictedUser)
	setDefault(&context.FSGroup, restrictedUser)
	setDefault(&context.SeccompProfile, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	for i := range pod.InitContainers {
		restrictContainer(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		restrictContainer(&pod.Containers[i])
	}
}

func restrictContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	context := container.SecurityContext
	if ptr.Deref(context.Privileged, false) {
		return // the API server rejects a privileged container that must not gain privileges
	}
	setDefault(&context.AllowPrivilegeEscalation, false)
	if context.Capabilities == nil {
		context.Capabilities = &corev1.Capabilities{}
	}
	if len(context.Capabilities.Drop) == 0 {
		context.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
