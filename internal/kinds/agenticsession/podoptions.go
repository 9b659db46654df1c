package agenticsession

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	caBundleVolume = "ca-bundle"
	caBundlePath   = "/etc/agentic-ca"
	caBundleFile   = "ca.crt"
	// runnerVolumePrefix keeps the names of a SessionRunner's volumes apart from the operator's.
	runnerVolumePrefix = "runner-"
)

// caBundleVariables name the file with certificate authorities for OpenSSL and Go, Node.js, Python, curl and git.
var caBundleVariables = []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}

func podLabels(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) map[string]string {
	labels := map[string]string{}
	if runner != nil && runner.Spec.Template != nil {
		maps.Copy(labels, runner.Spec.Template.Labels)
	}
	maps.Copy(labels, childLabels(s))
	return labels
}

// applyPodOptions sets what a SessionRunner's template says about the Pod and all its containers.
func (b *objectBuilder) applyPodOptions(template *corev1.PodTemplateSpec) {
	spec, from, pod := &b.settings.runner.Spec, b.settings.template.DeepCopy(), &template.Spec
	template.Labels, template.Annotations = podLabels(b.session, b.settings.runner), from.Annotations
	pod.HostUsers, pod.NodeSelector, pod.PriorityClassName, pod.Tolerations = from.Spec.HostUsers, from.Spec.NodeSelector, from.Spec.PriorityClassName, from.Spec.Tolerations
	for i := range pod.InitContainers {
		applyCABundle(&pod.InitContainers[i], spec)
	}
	for i := range pod.Containers {
		applyCABundle(&pod.Containers[i], spec)
	}
	if spec.CABundle != nil {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: caBundleVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: spec.CABundle.Name},
			Items:                []corev1.KeyToPath{{Key: cmp.Or(spec.CABundle.Key, caBundleFile), Path: caBundleFile}},
		}}})
	}
	for _, volume := range from.Spec.Volumes {
		volume.Name = runnerVolumePrefix + volume.Name
		pod.Volumes = append(pod.Volumes, volume)
	}
}

// templateMounts returns the mounts of a container of the template: of the template's volumes, read-only, and of the workspace.
func templateMounts(c *corev1.Container) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, mount := range c.VolumeMounts {
		if mount.Name != workspaceVolume {
			mount.Name, mount.ReadOnly = runnerVolumePrefix+mount.Name, true
		}
		mounts = append(mounts, mount)
	}
	return mounts
}

// applyCABundle makes a container trust the certificate authorities. Variables that the SessionRunner sets take precedence.
func applyCABundle(c *corev1.Container, spec *v1alpha1.SessionRunnerSpec) {
	if spec.CABundle == nil {
		return
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: caBundleVolume, MountPath: caBundlePath, ReadOnly: true})
	for _, name := range caBundleVariables {
		if !slices.ContainsFunc(c.Env, func(variable corev1.EnvVar) bool { return variable.Name == name }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: caBundlePath + "/" + caBundleFile})
		}
	}
}
