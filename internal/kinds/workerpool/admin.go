package workerpool

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

const (
	// MetricsPort is the port of a worker's metrics, metricsPortName its name. It is not one of the
	// numbers that are usual for servers, because the containers of a Pod share its ports.
	MetricsPort     = 18081
	metricsPortName = "worker-metrics"
	// AdminKeyFileName is the key of the operator's public key in the ConfigMap of a pool.
	AdminKeyFileName = "operator.pem"

	adminVolume      = "admin"
	envPreStopSecret = v1alpha1.WorkerEnvPrefix + "PRESTOP_SECRET"
	// configKeyOmitObjectNames is not in the configuration file, because runtimes that do not know a field
	// of it refuse the file.
	configKeyOmitObjectNames = "metrics-omit-object-names"
)

// AdminAccess is how the workers of a pool recognize the operator and the kubelet.
type AdminAccess struct {
	// PublicKey of the operator in PEM form.
	PublicKey string
	// PreStopKey is the key from which the secrets of the pool's revisions are derived.
	PreStopKey []byte
}

// preStopSecret returns the secret of the preStop hook of the updated revision; empty if its admin
// API has no protection. An existing revision keeps what it has, because every change of its template
// restarts its workers: an upgrade of the operator or a new key must not.
func (r *revisionState) preStopSecret(access *AdminAccess) string {
	if r.exists || access == nil {
		return r.PreStopSecret
	}
	return adminauth.PreStopSecret(access.PreStopKey, r.Hash)
}

// metricsPort returns the name of the port at which the revision's workers serve metrics.
func (r *revisionState) metricsPort() string {
	if r.PreStopSecret == "" {
		return adminPortName
	}
	return metricsPortName
}

// protectAdminAPI adds what the workers of a revision need to recognize the operator and the
// kubelet, and gives the metrics a port of their own. The revision's hash does not cover it.
func protectAdminAPI(pod *corev1.PodSpec, sharedName, preStopSecret string) {
	if preStopSecret == "" {
		return
	}
	consumer := consumerOf(pod)
	directory := ConfigMountPath + "/" + adminVolume
	omitObjectNames := configMapKeyRef(sharedName, configKeyOmitObjectNames)
	omitObjectNames.ConfigMapKeyRef.Optional = new(true)
	consumer.Env = append(consumer.Env,
		corev1.EnvVar{Name: v1alpha1.WorkerEnvPrefix + "ADMIN_KEY_FILE", Value: directory + "/" + AdminKeyFileName},
		corev1.EnvVar{Name: envPreStopSecret, Value: preStopSecret},
		corev1.EnvVar{Name: v1alpha1.WorkerEnvPrefix + "METRICS_ADDRESS", Value: ":" + strconv.Itoa(MetricsPort)},
		corev1.EnvVar{Name: v1alpha1.WorkerEnvPrefix + "METRICS_OMIT_OBJECT_NAMES", ValueFrom: omitObjectNames},
	)
	mountVolume(pod, consumer, adminVolume, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: sharedName},
		Items:                []corev1.KeyToPath{{Key: AdminKeyFileName, Path: AdminKeyFileName}},
		Optional:             new(true), // workers also start while the operator has no key, and refuse its requests
	}})
	addPort(consumer, metricsPortName, MetricsPort)
	for i := range pod.Containers {
		authorizePreStopHook(pod.Containers[i].Lifecycle, preStopSecret)
	}
}

// authorizePreStopHook adds the secret to a hook that requests /prestop of the admin API. It is a
// header, because the kubelet writes paths into events and logs, and workers without the Go runtime
// ignore it.
func authorizePreStopHook(lifecycle *corev1.Lifecycle, secret string) {
	if lifecycle == nil || lifecycle.PreStop == nil || lifecycle.PreStop.HTTPGet == nil {
		return
	}
	hook := lifecycle.PreStop.HTTPGet
	if hook.Path == preStopPath && (hook.Port == intstr.FromInt32(AdminPort) || hook.Port == intstr.FromString(adminPortName)) {
		hook.HTTPHeaders = append(hook.HTTPHeaders, corev1.HTTPHeader{Name: adminauth.PreStopHeader, Value: secret})
	}
}

// consumerOf returns the container of a Pod that takes messages.
func consumerOf(pod *corev1.PodSpec) *corev1.Container {
	if sidecar := sidecarOf(pod); sidecar != nil {
		return sidecar
	}
	return &pod.Containers[slices.IndexFunc(pod.Containers, isWorkerContainer)]
}

// PreStopSecretOf returns the secret of the preStop hook of a Pod; empty if it has none.
func PreStopSecretOf(pod *corev1.PodSpec) string {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			for _, variable := range containers[i].Env {
				if variable.Name == envPreStopSecret {
					return variable.Value
				}
			}
		}
	}
	return ""
}
