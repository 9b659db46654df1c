package agenticsession

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// templateOf returns the fields of a SessionRunner's template that exist in the CRD, as hack/crd lists them. All others have no
// effect: another one, such as hostPath, could weaken the isolation of sessions. The first container is always that of the
// runner.
func templateOf(spec *v1alpha1.SessionRunnerSpec) *corev1.PodTemplateSpec {
	template, runner := &corev1.PodTemplateSpec{}, corev1.Container{Name: v1alpha1.RunnerContainer}
	template.Spec.SecurityContext = &corev1.PodSecurityContext{}
	from := spec.Template.DeepCopy()
	if from == nil {
		template.Spec.Containers = []corev1.Container{runner}
		return template
	}
	template.Labels, template.Annotations = from.Labels, from.Annotations
	pod := &template.Spec
	pod.RuntimeClassName, pod.ServiceAccountName, pod.PriorityClassName = from.Spec.RuntimeClassName, from.Spec.ServiceAccountName, from.Spec.PriorityClassName
	pod.ImagePullSecrets, pod.HostUsers, pod.NodeSelector, pod.Tolerations = from.Spec.ImagePullSecrets, from.Spec.HostUsers, from.Spec.NodeSelector, from.Spec.Tolerations
	if sc := from.Spec.SecurityContext; sc != nil {
		pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = sc.RunAsUser, sc.RunAsGroup
	}
	for i := range from.Spec.Containers {
		if from.Spec.Containers[i].Name == v1alpha1.RunnerContainer {
			runner = copyContainer(&from.Spec.Containers[i])
		}
	}
	pod.Containers = []corev1.Container{runner}
	for i := range from.Spec.InitContainers {
		sidecar := copyContainer(&from.Spec.InitContainers[i])
		sidecar.Image, sidecar.StartupProbe = from.Spec.InitContainers[i].Image, from.Spec.InitContainers[i].StartupProbe
		pod.InitContainers = append(pod.InitContainers, sidecar)
	}
	for i := range from.Spec.Volumes {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: from.Spec.Volumes[i].Name, VolumeSource: copyVolumeSource(&from.Spec.Volumes[i])})
	}
	return template
}

func copyContainer(from *corev1.Container) corev1.Container {
	c := corev1.Container{
		Name: from.Name, Command: from.Command, Args: from.Args, Env: from.Env, ImagePullPolicy: from.ImagePullPolicy,
		Resources: corev1.ResourceRequirements{Requests: from.Resources.Requests, Limits: from.Resources.Limits},
	}
	for _, mount := range from.VolumeMounts {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly})
	}
	return c
}

// copyVolumeSource returns an empty source for all types of volumes that a SessionRunner cannot have.
func copyVolumeSource(from *corev1.Volume) corev1.VolumeSource {
	items := func(from []corev1.KeyToPath) []corev1.KeyToPath {
		var items []corev1.KeyToPath
		for _, item := range from {
			items = append(items, corev1.KeyToPath{Key: item.Key, Path: item.Path})
		}
		return items
	}
	switch {
	case from.ConfigMap != nil:
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: from.ConfigMap.LocalObjectReference, Items: items(from.ConfigMap.Items), Optional: from.ConfigMap.Optional,
		}}
	case from.Secret != nil:
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: from.Secret.SecretName, Items: items(from.Secret.Items), Optional: from.Secret.Optional, DefaultMode: new(int32(0o440)),
		}}
	case from.PersistentVolumeClaim != nil:
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: from.PersistentVolumeClaim.ClaimName, ReadOnly: true}}
	case from.Projected != nil:
		source := &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o440))}
		for i := range from.Projected.Sources {
			token := from.Projected.Sources[i].ServiceAccountToken
			if token == nil {
				continue
			}
			seconds := int64(tokenExpirationSeconds)
			if token.ExpirationSeconds != nil {
				seconds = cmp.Or(*token.ExpirationSeconds, seconds)
			}
			source.Sources = append(source.Sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: token.Audience, Path: token.Path, ExpirationSeconds: &seconds,
			}})
		}
		return corev1.VolumeSource{Projected: source}
	}
	return corev1.VolumeSource{}
}
