package testbuilder

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// RunnerPod returns the Pod of a SessionRunner's template, which it creates with the container of the runner.
func RunnerPod(spec *v1alpha1.SessionRunnerSpec) *corev1.PodSpec {
	if spec.Template == nil {
		spec.Template = &corev1.PodTemplateSpec{}
	}
	pod := &spec.Template.Spec
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	if len(pod.Containers) == 0 {
		pod.Containers = []corev1.Container{{Name: v1alpha1.RunnerContainer}}
	}
	return pod
}

// RunnerContainer returns the container of the runner in a SessionRunner's template, which it creates.
func RunnerContainer(spec *v1alpha1.SessionRunnerSpec) *corev1.Container {
	return &RunnerPod(spec).Containers[0]
}

// MountVolume adds a volume to a SessionRunner's template, and mounts it into the runner.
func MountVolume(spec *v1alpha1.SessionRunnerSpec, name, path string, source corev1.VolumeSource) {
	pod := RunnerPod(spec)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

// Tokens returns the source of a volume with tokens.
func Tokens(tokens ...corev1.ServiceAccountTokenProjection) corev1.VolumeSource {
	source := &corev1.ProjectedVolumeSource{}
	for i := range tokens {
		source.Sources = append(source.Sources, corev1.VolumeProjection{ServiceAccountToken: &tokens[i]})
	}
	return corev1.VolumeSource{Projected: source}
}

// ConfigMapVolume returns the source of a volume with a ConfigMap.
func ConfigMapVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

// SecretVolume returns the source of a volume with a Secret.
func SecretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
}

// ClaimVolume returns the source of a volume with a PersistentVolumeClaim.
func ClaimVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// Sidecar returns a sidecar of a SessionRunner's template.
func Sidecar(name, image string) corev1.Container {
	return corev1.Container{Name: name, Image: image, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
}

// SidecarWithWorkspace returns a sidecar that mounts the workspace.
func SidecarWithWorkspace(name, image string) corev1.Container {
	c := Sidecar(name, image)
	c.VolumeMounts = []corev1.VolumeMount{{Name: "workspace", MountPath: "/workspace"}}
	return c
}

// Source returns a Secret or ConfigMap that sessions may use.
func Source(name string, keys ...string) v1alpha1.SessionSource {
	return v1alpha1.SessionSource{LocalReference: v1alpha1.LocalReference{Name: name}, Keys: keys}
}

// Block returns the peer of a network.
func Block(cidr string, except ...string) *networkingv1.NetworkPolicyPeer {
	return &networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

// Ports returns ports for TCP.
func Ports(ports ...int32) []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for _, port := range ports {
		all = append(all, networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(port))})
	}
	return all
}

// PortRange returns a range of ports for TCP.
func PortRange(first, last int32) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(first)), EndPort: &last}}
}
