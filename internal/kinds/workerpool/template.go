package workerpool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

const (
	// SidecarContainer is the container with the operator's worker runtime, in drain mode Sidecar.
	SidecarContainer = "yardmaster"
	// AdminPort is the port of a worker's admin API, adminPortName its name.
	AdminPort     = 8081
	adminPortName = "admin"
	// preStopPath drains the worker, and responds once no message is in flight. It accepts GET requests, because a
	// preStop hook can send no others.
	preStopPath = "/prestop"
	// defaultHandlerPort is the port to which the sidecar forwards messages if the worker container declares none.
	defaultHandlerPort = 8080

	configFileName = "config.yaml"
	// ConfigMountPath contains a directory for the configuration and for each Secret.
	ConfigMountPath = "/etc/yardmaster"

	configKeyConcurrency = "concurrency"
	configKeyQueues      = "queues"
)

// buildTemplate returns the template of the workers' Pods, of which the hash identifies the revision. completeTemplate
// sets the fields that the hash does not cover.
func (b *workloadBuilder) buildTemplate() corev1.PodTemplateSpec {
	wp := b.pool
	t := *cmp.Or(wp.Spec.Template, &corev1.PodTemplateSpec{}).DeepCopy()
	worker := b.workerContainer(&t.Spec)
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	t.Spec.ServiceAccountName = cmp.Or(t.Spec.ServiceAccountName, sharedObjectName(wp.Name))
	t.Spec.AutomountServiceAccountToken = cmp.Or(t.Spec.AutomountServiceAccountToken, new(false))
	// It is ready while the worker is attached to all its queues and does not drain.
	ready := &corev1.Probe{ProbeHandler: httpGetAction("/readyz"), PeriodSeconds: 2}
	consumer := worker
	sidecar := corev1.Container{Name: SidecarContainer}
	if i := indexOfContainer(t.Spec.InitContainers, SidecarContainer); i >= 0 {
		sidecar = t.Spec.InitContainers[i]
		t.Spec.InitContainers = slices.Delete(t.Spec.InitContainers, i, i+1)
	}
	switch b.drain.Mode {
	case v1alpha1.DrainSidecar:
		b.completeSidecar(&sidecar, worker, ready)
		t.Spec.InitContainers = append(t.Spec.InitContainers, sidecar)
		consumer = &t.Spec.InitContainers[len(t.Spec.InitContainers)-1]
	case v1alpha1.DrainHTTP:
		addPort(worker, adminPortName, AdminPort)
		worker.ReadinessProbe = cmp.Or(worker.ReadinessProbe, ready)
	}
	b.addBrokerAccess(&t.Spec, consumer)
	if b.drain.Mode != v1alpha1.DrainSignal {
		// It drains the worker when its Pod is deleted, for example by a node drain or an eviction.
		hook := &corev1.LifecycleHandler{HTTPGet: httpGetAction(preStopPath).HTTPGet}
		worker.Lifecycle = cmp.Or(worker.Lifecycle, &corev1.Lifecycle{})
		worker.Lifecycle.PreStop = cmp.Or(worker.Lifecycle.PreStop, hook)
	}
	setTerminationGrace(&t.Spec, b.hashedGrace)
	restrictPod(&t.Spec)
	metav1.SetMetaDataAnnotation(&t.ObjectMeta, AnnotationWorkerPool, wp.Name)
	if b.config.Connection != "" {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, annotationConnection, b.config.Connection)
	}
	t.Labels = labels.Merge(t.Labels, objectLabels(wp.Name))
	if wp.Spec.Version != "" {
		t.Labels[LabelAppVersion] = wp.Spec.Version
	}
	return t
}

// completeTemplate sets the fields of a template that depend on its hash, and the fields that its hash does not cover: the
// image of the sidecar, a default of the grace period, and the protection of the admin API. An existing revision keeps
// these, so that an upgrade of the operator, another drain.timeout or a new key does not restart its workers.
func (b *workloadBuilder) completeTemplate(t *corev1.PodTemplateSpec, r *revisionState) {
	t.Labels[LabelRevision] = r.Hash
	consumer := consumerOf(&t.Spec)
	for i := range consumer.Env {
		if consumer.Env[i].Name == v1alpha1.WorkerEnvPrefix+"REVISION" {
			consumer.Env[i].Value = r.Hash
		}
	}
	if consumer.Name == SidecarContainer {
		consumer.Image = cmp.Or(r.SidecarImage, b.operator.Image)
	}
	grace := b.terminationGrace
	if r.TerminationGrace > 0 && b.hashedGrace == policy.MinTerminationGrace {
		grace = r.TerminationGrace
	}
	setTerminationGrace(&t.Spec, grace)
	if access := b.operator.Admin; access != nil && !r.exists {
		r.PreStopSecret = adminauth.PreStopSecret(access.PreStopKey, r.Hash)
	}
	protectAdminAPI(&t.Spec, sharedObjectName(b.pool.Name), r.PreStopSecret)
}

// workerContainer returns the worker container of a Pod, with spec.image.
func (b *workloadBuilder) workerContainer(pod *corev1.PodSpec) *corev1.Container {
	i := indexOfContainer(pod.Containers, v1alpha1.WorkerContainer)
	if i < 0 {
		pod.Containers = append(pod.Containers, corev1.Container{Name: v1alpha1.WorkerContainer})
		i = len(pod.Containers) - 1
	}
	worker := &pod.Containers[i]
	worker.Image = cmp.Or(b.pool.Spec.Image, worker.Image)
	return worker
}

// indexOfContainer returns the index of the container with a name, or -1.
func indexOfContainer(containers []corev1.Container, name string) int {
	return slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
}

// completeSidecar adds everything but the environment and resources that the template may have.
func (b *workloadBuilder) completeSidecar(sidecar, worker *corev1.Container, ready *corev1.Probe) {
	port := int32(defaultHandlerPort)
	if len(worker.Ports) > 0 {
		port = worker.Ports[0].ContainerPort
	}
	if sidecar.Resources.Requests == nil && sidecar.Resources.Limits == nil {
		// The default satisfies a ResourceQuota, which may require requests and limits of each container. Its memory limit is
		// enough for the largest number of prefetched messages with 64 KiB each.
		sidecar.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
		sidecar.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	}
	sidecar.Args = []string{"worker", "--forward", fmt.Sprintf("http://127.0.0.1:%d%s", port, b.pool.Spec.HandlerPath)}
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	sidecar.Ports = []corev1.ContainerPort{{Name: adminPortName, ContainerPort: AdminPort, Protocol: corev1.ProtocolTCP}}
	sidecar.ReadinessProbe = ready
	sidecar.LivenessProbe = &corev1.Probe{ProbeHandler: httpGetAction("/livez"), PeriodSeconds: 10, FailureThreshold: 6}
}

// SidecarImage returns the image of a Pod's sidecar, or "".
func SidecarImage(pod *corev1.PodSpec) string {
	for i := range pod.InitContainers {
		if pod.InitContainers[i].Name == SidecarContainer {
			return pod.InitContainers[i].Image
		}
	}
	return ""
}

// TemplateOf returns the Pod template of a Deployment or StatefulSet.
func TemplateOf(workload decision.Object) *corev1.PodTemplateSpec {
	switch w := workload.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template
	case *appsv1.StatefulSet:
		return &w.Spec.Template
	}
	return &corev1.PodTemplateSpec{}
}

// addPort declares a port of the worker, unless the user has declared the port or another port with its name.
func addPort(worker *corev1.Container, name string, port int32) {
	taken := func(p corev1.ContainerPort) bool { return p.ContainerPort == port || p.Name == name }
	if !slices.ContainsFunc(worker.Ports, taken) {
		worker.Ports = append(worker.Ports, corev1.ContainerPort{Name: name, ContainerPort: port, Protocol: corev1.ProtocolTCP})
	}
}

func httpGetAction(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(AdminPort)}}
}

// addBrokerAccess adds the configuration and the Secrets with which a container consumes messages from the broker.
func (b *workloadBuilder) addBrokerAccess(pod *corev1.PodSpec, c *corev1.Container) {
	shared := sharedObjectName(b.pool.Name)
	fixed := []corev1.EnvVar{
		{Name: "POOL", Value: b.pool.Name},
		{Name: "NAMESPACE", Value: b.pool.Namespace},
		{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		{Name: "REVISION"},
		{Name: "QUEUES", ValueFrom: configMapKeyRef(shared, configKeyQueues)},
		{Name: "CONCURRENCY", ValueFrom: configMapKeyRef(shared, configKeyConcurrency)},
		{Name: "CONFIG_FILE", Value: ConfigMountPath + "/config/" + configFileName},
		{Name: "DRAIN_TIMEOUT"},
	}
	if b.config.File == "" { // a pool with a source has no configuration file
		fixed = slices.DeleteFunc(fixed, func(e corev1.EnvVar) bool {
			return e.Name == "QUEUES" || e.Name == "CONFIG_FILE"
		})
	}
	for i := range fixed {
		fixed[i].Name = v1alpha1.WorkerEnvPrefix + fixed[i].Name
	}
	c.Env = append(fixed, c.Env...)
	if b.config.File == "" {
		return
	}
	mountVolume(pod, c, "config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: shared},
		Items:                []corev1.KeyToPath{{Key: configFileName, Path: configFileName}},
	}})
	for _, name := range slices.Sorted(maps.Keys(b.config.Secrets)) {
		files := b.config.Secrets[name]
		source := &corev1.SecretVolumeSource{SecretName: files.Secret}
		for _, key := range files.Keys {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		mountVolume(pod, c, name, corev1.VolumeSource{Secret: source})
	}
}

func configMapKeyRef(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}
}

func mountVolume(pod *corev1.PodSpec, c *corev1.Container, name string, source corev1.VolumeSource) {
	volume := SidecarContainer + "-" + name
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: ConfigMountPath + "/" + name, ReadOnly: true})
}

// restrictPod applies the restricted Pod Security Standard to fields that the user did not set.
func restrictPod(pod *corev1.PodSpec) {
	pod.SecurityContext = cmp.Or(pod.SecurityContext, &corev1.PodSecurityContext{})
	pod.SecurityContext.RunAsNonRoot = cmp.Or(pod.SecurityContext.RunAsNonRoot, new(true))
	if pod.OS != nil && pod.OS.Name == corev1.Windows {
		return // the API server refuses the other fields
	}
	pod.SecurityContext.SeccompProfile = cmp.Or(pod.SecurityContext.SeccompProfile,
		&corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			c := &containers[i]
			c.SecurityContext = cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
			context := c.SecurityContext
			context.AllowPrivilegeEscalation = cmp.Or(context.AllowPrivilegeEscalation, new(false))
			context.Capabilities = cmp.Or(context.Capabilities, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}})
		}
	}
}

// shutdownMargin is how long before the end of its grace period a worker stops handling messages, to release them in
// time.
const shutdownMargin = 5 * time.Second

// setTerminationGrace sets the grace period of a Pod, and the time in which its worker must drain.
func setTerminationGrace(pod *corev1.PodSpec, grace time.Duration) {
	pod.TerminationGracePeriodSeconds = new(int64((grace + time.Second - 1) / time.Second))
	consumer := consumerOf(pod)
	for i := range consumer.Env {
		if consumer.Env[i].Name == v1alpha1.WorkerEnvPrefix+"DRAIN_TIMEOUT" {
			consumer.Env[i].Value = max(grace-shutdownMargin, grace/2).String()
		}
	}
}

// TerminationGraceOf returns the grace period of a Pod.
func TerminationGraceOf(pod *corev1.PodSpec) time.Duration {
	return time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 0)) * time.Second
}

const (
	// MetricsPort is the port of a worker's metrics, metricsPortName its name. Servers rarely use this number, which
	// matters because the containers of a Pod share its ports.
	MetricsPort     = 18081
	metricsPortName = "worker-metrics"
	// AdminKeyFileName is the key, in the ConfigMap of a pool, of the operator's public key.
	AdminKeyFileName = "operator.pem"

	adminVolume = "admin"
	// EnvPreStopSecret is the variable of a worker with the secret of its preStop hook.
	EnvPreStopSecret = v1alpha1.WorkerEnvPrefix + "PRESTOP_SECRET"
	// configKeyOmitObjectNames is not in the configuration file, because older runtimes refuse a file with unknown
	// fields.
	configKeyOmitObjectNames = "metrics-omit-object-names"
)

// AdminAccess has the keys with which the workers of a pool authenticate the operator and the kubelet.
type AdminAccess struct {
	// PublicKey of the operator in PEM form.
	PublicKey string
	// PreStopKey is the key from which the preStop secrets of the pool's revisions are derived.
	PreStopKey []byte
}

// protectAdminAPI lets the workers of a revision authenticate the operator and the kubelet, and serves the metrics on a
// separate port.
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
		corev1.EnvVar{Name: EnvPreStopSecret, Value: preStopSecret},
		corev1.EnvVar{Name: v1alpha1.WorkerEnvPrefix + "METRICS_ADDRESS", Value: ":" + strconv.Itoa(MetricsPort)},
		corev1.EnvVar{Name: v1alpha1.WorkerEnvPrefix + "METRICS_OMIT_OBJECT_NAMES", ValueFrom: omitObjectNames},
	)
	mountVolume(pod, consumer, adminVolume, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: sharedName},
		Items:                []corev1.KeyToPath{{Key: AdminKeyFileName, Path: AdminKeyFileName}},
		Optional:             new(true), // without a key, workers start, and accept all requests
	}})
	addPort(consumer, metricsPortName, MetricsPort)
	for i := range pod.Containers {
		lifecycle := pod.Containers[i].Lifecycle
		if lifecycle == nil || lifecycle.PreStop == nil || lifecycle.PreStop.HTTPGet == nil {
			continue
		}
		// A hook that requests preStopPath of the admin API gets the secret as a header, because the kubelet writes paths
		// into events and logs, and other runtimes ignore it.
		hook := lifecycle.PreStop.HTTPGet
		if hook.Path == preStopPath && (hook.Port == intstr.FromInt32(AdminPort) || hook.Port == intstr.FromString(adminPortName)) {
			hook.HTTPHeaders = append(hook.HTTPHeaders, corev1.HTTPHeader{Name: adminauth.PreStopHeader, Value: preStopSecret})
		}
	}
}

// consumerOf returns the container that takes messages.
func consumerOf(pod *corev1.PodSpec) *corev1.Container {
	if i := indexOfContainer(pod.InitContainers, SidecarContainer); i >= 0 {
		return &pod.InitContainers[i]
	}
	return &pod.Containers[indexOfContainer(pod.Containers, v1alpha1.WorkerContainer)]
}

// PreStopSecretOf returns the secret of the preStop hook of a Pod, or "".
func PreStopSecretOf(pod *corev1.PodSpec) string {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			for _, variable := range containers[i].Env {
				if variable.Name == EnvPreStopSecret {
					return variable.Value
				}
			}
		}
	}
	return ""
}
