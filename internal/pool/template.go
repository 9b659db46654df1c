package pool

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// SidecarContainer is the name of the container with our runtime, in drain mode Sidecar.
	SidecarContainer = "yardmaster"
	// AdminPort is where a worker's admin API is, and adminPortName the port's name.
	AdminPort     = 8081
	adminPortName = "admin"
	// preStopPath drains, and answers when nothing is in flight any more: what a preStop hook,
	// which can only get, needs.
	preStopPath = "/prestop"
	// defaultHandlerPort is where a worker listens to the forwarder if it does not say.
	defaultHandlerPort = 8080

	configFileName = "config.yaml"
	// ConfigMountPath is where a worker finds what it reads, a directory for each.
	ConfigMountPath = "/etc/yardmaster"

	configKeyConcurrency = "concurrency"
	configKeyQueues      = "queues"
)

// shutdownMargin is how long before it would be killed a worker gives up on what it is at,
// so that it can still give its messages back.
const shutdownMargin = 5 * time.Second

// buildTemplate of the workers' Pods, without what depends on its own hash.
func (d *evaluation) buildTemplate() corev1.PodTemplateSpec {
	wp := d.observation.Pool
	t := corev1.PodTemplateSpec{}
	if wp.Spec.Template != nil {
		t = *wp.Spec.Template.DeepCopy()
	}
	worker := d.workerContainer(&t.Spec)
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	t.Spec.TerminationGracePeriodSeconds = new(wholeSeconds(d.terminationGrace()))
	if t.Spec.ServiceAccountName == "" {
		t.Spec.ServiceAccountName = sharedObjectName(wp.Name)
	}
	if t.Spec.AutomountServiceAccountToken == nil {
		t.Spec.AutomountServiceAccountToken = new(false)
	}
	speaker := worker
	if d.drain.Mode == v1alpha1.DrainSidecar {
		t.Spec.InitContainers = append(t.Spec.InitContainers, d.buildSidecar(worker))
		speaker = &t.Spec.InitContainers[len(t.Spec.InitContainers)-1]
	}
	if d.drain.Mode == v1alpha1.DrainHTTP {
		addAdminPort(worker)
	}
	d.addBrokerAccess(&t.Spec, speaker)
	if d.drain.Mode != v1alpha1.DrainSignal {
		addPreStopHook(worker)
	}
	restrictPod(&t.Spec)
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	t.Annotations[AnnotationWorkerPool] = wp.Name
	if wp.Spec.Version != "" {
		t.Labels[LabelAppVersion] = wp.Spec.Version
	}
	maps.Copy(t.Labels, objectLabels(wp.Name))
	return t
}

// setRevisionHash gives a template what depends on its hash.
func setRevisionHash(t *corev1.PodTemplateSpec, hash string) {
	t.Labels[LabelRevision] = hash
	for _, containers := range [][]corev1.Container{t.Spec.Containers, t.Spec.InitContainers} {
		for i := range containers {
			for j := range containers[i].Env {
				if containers[i].Env[j].Name == v1alpha1.WorkerEnvPrefix+"REVISION" {
					containers[i].Env[j].Value = hash
				}
			}
		}
	}
}

// workerContainer is the container that works, with the short forms over it.
func (d *evaluation) workerContainer(pod *corev1.PodSpec) *corev1.Container {
	spec := &d.observation.Pool.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.WorkerContainer })
	if i < 0 {
		pod.Containers = append(pod.Containers, corev1.Container{Name: v1alpha1.WorkerContainer})
		i = len(pod.Containers) - 1
	}
	worker := &pod.Containers[i]
	if spec.Image != "" {
		worker.Image = spec.Image
	}
	if spec.Resources != nil {
		worker.Resources = *spec.Resources.DeepCopy()
	}
	for _, variable := range spec.Env {
		same := func(e corev1.EnvVar) bool { return e.Name == variable.Name }
		if j := slices.IndexFunc(worker.Env, same); j >= 0 {
			worker.Env[j] = *variable.DeepCopy()
			continue
		}
		worker.Env = append(worker.Env, *variable.DeepCopy())
	}
	return worker
}

// buildSidecar is our runtime, which gives each message to the worker beside it.
func (d *evaluation) buildSidecar(worker *corev1.Container) corev1.Container {
	port := int32(defaultHandlerPort)
	if len(worker.Ports) > 0 {
		port = worker.Ports[0].ContainerPort
	}
	return corev1.Container{
		Name:           SidecarContainer,
		Image:          d.observation.Operator.Image,
		Args:           []string{"worker", "--forward", fmt.Sprintf("http://127.0.0.1:%d", port)},
		RestartPolicy:  new(corev1.ContainerRestartPolicyAlways),
		Ports:          []corev1.ContainerPort{{Name: adminPortName, ContainerPort: AdminPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: httpGetAction("/readyz"), PeriodSeconds: 2},
		LivenessProbe:  &corev1.Probe{ProbeHandler: httpGetAction("/livez"), PeriodSeconds: 10, FailureThreshold: 6},
	}
}

// addAdminPort has a PodMonitor find the worker's metrics.
func addAdminPort(worker *corev1.Container) {
	taken := func(p corev1.ContainerPort) bool { return p.ContainerPort == AdminPort || p.Name == adminPortName }
	if !slices.ContainsFunc(worker.Ports, taken) {
		worker.Ports = append(worker.Ports, corev1.ContainerPort{Name: adminPortName, ContainerPort: AdminPort, Protocol: corev1.ProtocolTCP})
	}
}

func httpGetAction(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(AdminPort)}}
}

// addPreStopHook has the worker drained by whoever deletes its Pod: a node's drain, an
// eviction. One who has a hook of its own keeps it.
func addPreStopHook(worker *corev1.Container) {
	if worker.Lifecycle == nil {
		worker.Lifecycle = &corev1.Lifecycle{}
	}
	if worker.Lifecycle.PreStop == nil {
		worker.Lifecycle.PreStop = &corev1.LifecycleHandler{HTTPGet: httpGetAction(preStopPath).HTTPGet}
	}
}

// addBrokerAccess gives the container that speaks to the broker what it needs for that.
func (d *evaluation) addBrokerAccess(pod *corev1.PodSpec, c *corev1.Container) {
	shared := sharedObjectName(d.observation.Pool.Name)
	fixed := []corev1.EnvVar{
		{Name: "POOL", Value: d.observation.Pool.Name},
		{Name: "NAMESPACE", Value: d.observation.Pool.Namespace},
		{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		{Name: "REVISION"},
		{Name: "QUEUES", ValueFrom: configMapKeyRef(shared, configKeyQueues)},
		{Name: "CONCURRENCY", ValueFrom: configMapKeyRef(shared, configKeyConcurrency)},
		{Name: "CONFIG_FILE", Value: ConfigMountPath + "/config/" + configFileName},
		{Name: "DRAIN_TIMEOUT", Value: max(d.terminationGrace()-shutdownMargin, d.terminationGrace()/2).String()},
	}
	if d.observation.Config.File == "" { // a pool with a source: nothing to read
		fixed = slices.DeleteFunc(fixed, func(e corev1.EnvVar) bool {
			return e.Name == "QUEUES" || e.Name == "CONFIG_FILE"
		})
	}
	for i := range fixed {
		fixed[i].Name = v1alpha1.WorkerEnvPrefix + fixed[i].Name
	}
	c.Env = append(fixed, c.Env...)
	if d.observation.Config.File == "" {
		return
	}
	mountVolume(pod, c, "config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: shared},
		Items:                []corev1.KeyToPath{{Key: configFileName, Path: configFileName}},
	}})
	for _, name := range sortedKeys(d.observation.Config.Secrets) {
		files := d.observation.Config.Secrets[name]
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

// mountVolume puts a volume where the container reads it.
func mountVolume(pod *corev1.PodSpec, c *corev1.Container, name string, source corev1.VolumeSource) {
	volume := SidecarContainer + "-" + name
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: ConfigMountPath + "/" + name, ReadOnly: true})
}

// restrictPod gives the Pod what the restricted Pod Security Standard asks for, where it
// does not say otherwise itself.
func restrictPod(pod *corev1.PodSpec) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	if pod.SecurityContext.RunAsNonRoot == nil {
		pod.SecurityContext.RunAsNonRoot = new(true)
	}
	if pod.SecurityContext.SeccompProfile == nil {
		pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			restrictContainer(&containers[i])
		}
	}
}

func restrictContainer(c *corev1.Container) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil {
		c.SecurityContext.AllowPrivilegeEscalation = new(false)
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
}

// terminationGrace is how long a worker has that is deleted. SIGTERM is the only way to ask one in
// mode Signal, so there it is all the time it has.
func (d *evaluation) terminationGrace() time.Duration {
	grace := d.drain.TerminationGrace.Duration.Duration
	if d.drain.Mode == v1alpha1.DrainSignal {
		grace += d.drain.Timeout.Duration.Duration
	}
	return grace
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
