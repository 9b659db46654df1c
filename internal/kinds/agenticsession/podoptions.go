package agenticsession

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

var (
	// reservedMetadataPrefixes and reservedMetadataKeys are labels and annotations that a SessionRunner cannot set,
	// because the operator and the Job controller use them, or because they change the isolation of containers.
	reservedMetadataPrefixes = []string{v1alpha1.Prefix, "batch.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/"}
	reservedMetadataKeys     = []string{v1alpha1.LabelManagedBy, "job-name", "controller-uid"}
	// reservedPaths are the directories of the operator, and directories without which no container works.
	reservedPaths = []string{inputsPath, workspacePath, secretsPath, homePath, tempPath, gitPath, archivePath, "/var/run/secrets", caBundlePath, "/dev", "/proc", "/sys"}
)

func podLabels(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) map[string]string {
	labels := map[string]string{}
	if runner != nil && runner.Spec.PodMetadata != nil {
		maps.Copy(labels, runner.Spec.PodMetadata.Labels)
	}
	maps.Copy(labels, childLabels(s))
	return labels
}

func (b *objectBuilder) applyPodOptions(template *corev1.PodTemplateSpec) {
	spec, pod := &b.settings.runner.Spec, &template.Spec
	template.Labels = podLabels(b.session, b.settings.runner)
	if spec.PodMetadata != nil {
		template.Annotations = maps.Clone(spec.PodMetadata.Annotations)
	}
	pod.HostUsers, pod.NodeSelector, pod.PriorityClassName = spec.HostUsers, maps.Clone(spec.NodeSelector), spec.PriorityClassName
	for i := range spec.Tolerations {
		pod.Tolerations = append(pod.Tolerations, *spec.Tolerations[i].DeepCopy())
	}
	for i := range pod.InitContainers {
		applyContainerOptions(&pod.InitContainers[i], spec)
	}
	for i := range pod.Containers {
		applyContainerOptions(&pod.Containers[i], spec)
	}
	if spec.CABundle != nil {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: caBundleVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: spec.CABundle.ConfigMap},
			Items:                []corev1.KeyToPath{{Key: cmp.Or(spec.CABundle.Key, caBundleFile), Path: caBundleFile}},
		}}})
	}
	runner := &pod.Containers[0]
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: runnerVolumePrefix + volume.Name, VolumeSource: volumeSource(volume)})
		runner.VolumeMounts = append(runner.VolumeMounts, corev1.VolumeMount{Name: runnerVolumePrefix + volume.Name, MountPath: volume.MountPath, ReadOnly: true})
	}
}

func volumeSource(volume *v1alpha1.SessionVolume) corev1.VolumeSource {
	switch {
	case volume.ConfigMap != "":
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: volume.ConfigMap}}}
	case volume.Secret != "":
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: volume.Secret, DefaultMode: new(int32(0o440))}}
	default:
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.PersistentVolumeClaim, ReadOnly: true}}
	}
}

// applyContainerOptions sets the pull policy and the certificate authorities of a container. Variables that the
// SessionRunner sets take precedence.
func applyContainerOptions(c *corev1.Container, spec *v1alpha1.SessionRunnerSpec) {
	c.ImagePullPolicy = spec.ImagePullPolicy
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

// validatePodOptions returns the problems of the options of a SessionRunner's Pods.
func validatePodOptions(spec *v1alpha1.SessionRunnerSpec) []string {
	var problems []string
	addErrors := func(errs field.ErrorList) {
		for _, err := range errs {
			problems = append(problems, err.Error())
		}
	}
	addErrors(metav1validation.ValidateLabels(spec.NodeSelector, field.NewPath("nodeSelector")))
	addMetadata := func(name string, labels, annotations map[string]string) {
		addErrors(metav1validation.ValidateLabels(labels, field.NewPath(name, "labels")))
		addErrors(validation.ValidateAnnotations(annotations, field.NewPath(name, "annotations")))
		for _, key := range slices.Concat(sortedKeys(labels), sortedKeys(annotations)) {
			isReserved := slices.Contains(reservedMetadataKeys, key) ||
				slices.ContainsFunc(reservedMetadataPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
			if isReserved {
				problems = append(problems, name+": "+key+" is reserved")
			}
		}
	}
	if m := spec.PodMetadata; m != nil {
		addMetadata("podMetadata", m.Labels, m.Annotations)
	}
	if m := spec.JobMetadata; m != nil {
		addMetadata("jobMetadata", m.Labels, m.Annotations)
	}
	var taken []string
	for i := range spec.Volumes {
		at := spec.Volumes[i].MountPath
		if !path.IsAbs(at) || path.Clean(at) != at {
			problems = append(problems, "volume "+spec.Volumes[i].Name+": mountPath "+at+" is not an absolute path without . and ..")
		}
		for _, other := range slices.Concat(reservedPaths, taken) {
			if isWithin(at, other) || isWithin(other, at) {
				problems = append(problems, "volume "+spec.Volumes[i].Name+": mountPath "+at+" overlaps with "+other)
			}
		}
		taken = append(taken, at)
	}
	return problems
}

// isWithin reports whether a path is a directory or in it.
func isWithin(inner, outer string) bool {
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}
