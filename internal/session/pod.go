package session

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Where a runner finds things. All else in its file system is read-only.
const (
	inputsPath    = "/etc/agentic"
	workspacePath = "/workspace"
	secretsPath   = "/secrets"
	homePath      = "/home/agent"
	tempPath      = "/tmp"
	tokenPath     = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // no credential: where one is found
	resultPath    = corev1.TerminationMessagePathDefault

	homeVariable = "HOME"
	tempVariable = "TMPDIR"
)

// Names of volumes.
const (
	inputsVolume    = "inputs"
	workspaceVolume = "workspace"
	homeVolume      = "home"
	tempVolume      = "tmp"
	tokenVolume     = "token"
)

const (
	// gracePeriodSeconds is how long a Pod has to end. A deleted session's must be gone in 30 s.
	gracePeriodSeconds = 25
	// defaultFSGroup owns the volumes if the SessionRunner does not say who does.
	defaultFSGroup = 65532
	// tokenExpirationSeconds is how long a token for the Lease is good for. The kubelet renews it.
	tokenExpirationSeconds = 3600
	// defaultSessionPort is where an interactive session listens.
	defaultSessionPort = 8080
	sessionPortName    = "session"
)

// operatorVariables are those that the operator sets, whatever they are called.
var operatorVariables = []string{homeVariable, tempVariable}

// template of the attempt's Pod. It is built from nothing: no part of it is a user's to
// give whole.
func (d *evaluation) template(inputs string) corev1.PodTemplateSpec {
	s := d.observation.Session
	pod := corev1.PodSpec{
		ServiceAccountName:            sharedName(s.Name),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(gracePeriodSeconds)),
		RuntimeClassName:              d.resolved.runner.Spec.RuntimeClassName,
		SecurityContext:               d.podSecurity(),
		Volumes:                       d.volumes(inputs),
		Containers:                    []corev1.Container{d.runnerContainer(inputs)},
		InitContainers:                d.sidecars(),
	}
	for i := range pod.InitContainers {
		pod.Volumes = append(pod.Volumes, emptyDirVolume(sidecarTempVolume(i), pod.InitContainers[i].Resources.Limits))
	}
	for _, secret := range d.resolved.runner.Spec.ImagePullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	hardenContainers(pod.InitContainers)
	hardenContainers(pod.Containers)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: childLabels(s)}, Spec: pod}
}

func (d *evaluation) podSecurity() *corev1.PodSecurityContext {
	spec := &d.resolved.runner.Spec
	group := spec.RunAsGroup
	if group == nil {
		group = new(int64(defaultFSGroup))
	}
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      spec.RunAsUser,
		RunAsGroup:     spec.RunAsGroup,
		FSGroup:        group,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// A volume with many files is not gone through at each start.
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
	}
}

// hardenContainers takes from all containers what no session needs. It sets the whole of it, so that
// nothing is left of what might have been there.
func hardenContainers(containers []corev1.Container) {
	for i := range containers {
		containers[i].SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot:             new(true),
			Privileged:               new(false),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	}
}

func (d *evaluation) runnerContainer(inputs string) corev1.Container {
	spec := &d.resolved.runner.Spec
	c := corev1.Container{
		Name: v1alpha1.RunnerContainer, Image: d.resolved.image,
		Command: spec.Command, Args: spec.Args,
		Env: d.environment(inputs), EnvFrom: d.observation.Session.Spec.EnvFrom,
		Resources:                d.resolved.resources,
		TerminationMessagePath:   resultPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts: []corev1.VolumeMount{
			{Name: inputsVolume, MountPath: inputsPath, ReadOnly: true},
			{Name: workspaceVolume, MountPath: workspacePath},
			{Name: homeVolume, MountPath: homePath},
			{Name: tempVolume, MountPath: tempPath},
		},
	}
	for i := range d.observation.Session.Spec.SecretMounts {
		mount := &d.observation.Session.Spec.SecretMounts[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretVolumeName(i), MountPath: secretMountPath(mount), ReadOnly: true})
	}
	if spec.ActivityLease {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true})
	}
	if d.observation.Session.Spec.Interactive {
		c.Ports = []corev1.ContainerPort{{Name: sessionPortName, ContainerPort: d.port(), Protocol: corev1.ProtocolTCP}}
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(d.port())}},
			PeriodSeconds: 2,
		}
	}
	return c
}

func (d *evaluation) port() int32 {
	if port := d.resolved.runner.Spec.Port; port != 0 {
		return port
	}
	return defaultSessionPort
}

// environment of the runner: the operator's variables, the SessionRunner's, the session's.
// What stands later can refer to what stands earlier, never the other way round. No name
// comes twice, and all of them go before what envFrom brings.
func (d *evaluation) environment(inputs string) []corev1.EnvVar {
	s := d.observation.Session
	env := []corev1.EnvVar{
		{Name: homeVariable, Value: homePath},
		{Name: tempVariable, Value: tempPath},
	}
	set := func(name, value string) {
		env = append(env, corev1.EnvVar{Name: v1alpha1.SessionEnvPrefix + name, Value: value})
	}
	set("SESSION", s.Name)
	set("NAMESPACE", s.Namespace)
	set("RUN", strconv.Itoa(int(d.status.Run)))
	set("ATTEMPT", strconv.Itoa(int(d.status.Attempt)))
	set("JOB", d.status.Job)
	set("PROMPT_FILE", inputsPath+"/"+promptKey)
	set("SESSION_FILE", inputsPath+"/"+sessionFileKey)
	set("WORKSPACE", workspacePath)
	set("RESULT_FILE", resultPath)
	set("SDK_SESSION_ID", d.status.SDKSessionID)
	if d.resolved.runner.Spec.ActivityLease {
		set("LEASE", LeaseName(s.Name))
	}
	if s.Spec.Interactive {
		set("PORT", strconv.Itoa(int(d.port())))
	}
	taken := map[string]bool{}
	for i := range env {
		taken[env[i].Name] = true
	}
	for _, variable := range d.resolved.runner.Spec.Env {
		if !taken[variable.Name] {
			taken[variable.Name] = true
			env = append(env, *variable.DeepCopy())
		}
	}
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if !taken[name] {
			env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: inputs}, Key: variableKeyPrefix + name,
			}}})
		}
	}
	return env
}

// volumes that the runner has.
func (d *evaluation) volumes(inputs string) []corev1.Volume {
	s := d.observation.Session
	limits := d.resolved.resources.Limits
	volumes := []corev1.Volume{
		{Name: inputsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: inputs, DefaultMode: new(int32(0o440)),
			Items: []corev1.KeyToPath{{Key: promptKey, Path: promptKey}, {Key: sessionFileKey, Path: sessionFileKey}},
		}}},
		d.workspaceVolume(),
		emptyDirVolume(homeVolume, limits),
		emptyDirVolume(tempVolume, limits),
	}
	for i := range s.Spec.SecretMounts {
		mount := &s.Spec.SecretMounts[i]
		volumes = append(volumes, corev1.Volume{Name: secretVolumeName(i), VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: mount.SecretName, DefaultMode: new(int32(0o440)), Optional: new(mount.Optional),
		}}})
	}
	if d.resolved.runner.Spec.ActivityLease {
		volumes = append(volumes, leaseTokenVolume())
	}
	return volumes
}

func (d *evaluation) workspaceVolume() corev1.Volume {
	volume := corev1.Volume{Name: workspaceVolume}
	if claim := d.status.WorkspaceClaim; claim != "" {
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		return volume
	}
	size := d.resolved.size
	volume.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: &size}
	return volume
}

// emptyDirVolume is no larger than what its container may write at all.
func emptyDirVolume(name string, limits corev1.ResourceList) corev1.Volume {
	source := &corev1.EmptyDirVolumeSource{}
	if limit, limited := limits[corev1.ResourceEphemeralStorage]; limited {
		source.SizeLimit = &limit
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: source}}
}

// leaseTokenVolume is what the runner renews its Lease with, where programs look for one. Only the
// runner has it, and only if the SessionRunner says so.
func leaseTokenVolume() corev1.Volume {
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o440)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenExpirationSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

// sidecars are native ones: containers that start before the runner, and end after it.
func (d *evaluation) sidecars() []corev1.Container {
	var containers []corev1.Container
	for i := range d.resolved.runner.Spec.Sidecars {
		sidecar := d.resolved.runner.Spec.Sidecars[i].DeepCopy()
		c := corev1.Container{
			Name: sidecar.Name, Image: sidecar.Image, Command: sidecar.Command, Args: sidecar.Args, Env: sidecar.Env,
			Resources:                resourceRequirements(fillResources(sidecar.Resources, sidecarDefaults)),
			RestartPolicy:            new(corev1.ContainerRestartPolicyAlways),
			StartupProbe:             restrictProbe(sidecar.StartupProbe),
			TerminationMessagePath:   resultPath,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			VolumeMounts:             []corev1.VolumeMount{{Name: sidecarTempVolume(i), MountPath: tempPath}},
		}
		if sidecar.Workspace {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: workspaceVolume, MountPath: workspacePath})
		}
		containers = append(containers, c)
	}
	return containers
}

// restrictProbe asks the Pod itself. A probe of another host would be the kubelet's request,
// which no NetworkPolicy holds back.
func restrictProbe(probe *corev1.Probe) *corev1.Probe {
	if probe == nil {
		return nil
	}
	if probe.HTTPGet != nil {
		probe.HTTPGet.Host = ""
	}
	if probe.TCPSocket != nil {
		probe.TCPSocket.Host = ""
	}
	probe.TerminationGracePeriodSeconds = nil
	return probe
}

func secretVolumeName(i int) string { return fmt.Sprintf("secret-%d", i) }

func sidecarTempVolume(i int) string { return fmt.Sprintf("sidecar-%d-tmp", i) }

// secretMountPath is where the files of a Secret are.
func secretMountPath(mount *v1alpha1.SecretMount) string {
	if mount.MountPath != "" {
		return mount.MountPath
	}
	return secretsPath + "/" + mount.SecretName
}
