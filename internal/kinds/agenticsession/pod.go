package agenticsession

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Paths in the runner's container. The rest of its file system is read-only.
const (
	inputsPath    = "/etc/agentic"
	workspacePath = "/workspace"
	secretsPath   = "/secrets"
	homePath      = "/home/agent"
	tempPath      = "/tmp"
	tokenPath     = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // the path of a credential, not a credential
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
	// GracePeriodSeconds is how long a Pod has to end. The Pods of a deleted session must be deleted within 30 s,
	// and the kubelet needs up to 15 s more if 20 of them ignore SIGTERM at the same time on 2 cores.
	GracePeriodSeconds = 10
	// defaultFSGroup owns the volumes if the template sets no runAsGroup.
	defaultFSGroup = 65532
	// tokenExpirationSeconds is the lifetime of the Lease's token. The kubelet rotates it.
	tokenExpirationSeconds = 3600
	defaultSessionPort     = 8080
	sessionPortName        = "session"
)

// operatorVariables are the operator's environment variables that do not have its prefix.
var operatorVariables = []string{homeVariable, tempVariable}

// newPodTemplate returns the template of the attempt's Pod. Every part is built here: users cannot supply a part as a
// whole.
func (b *objectBuilder) newPodTemplate(inputs string) corev1.PodTemplateSpec {
	spec, template := &b.settings.runner.Spec, b.settings.template.DeepCopy()
	from := &template.Spec
	checks := b.newCheckContainers()
	sidecars, sidecarVolumes := b.newSidecars(inputs, len(checks))
	pod := corev1.PodSpec{
		ServiceAccountName:            cmp.Or(from.ServiceAccountName, sharedName(b.session.Name)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(GracePeriodSeconds)),
		RuntimeClassName:              from.RuntimeClassName,
		HostUsers:                     from.HostUsers,
		NodeSelector:                  from.NodeSelector,
		PriorityClassName:             from.PriorityClassName,
		Tolerations:                   from.Tolerations,
		ImagePullSecrets:              from.ImagePullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      from.SecurityContext.RunAsUser,
			RunAsGroup:     from.SecurityContext.RunAsGroup,
			FSGroup:        new(ptr.Deref(from.SecurityContext.RunAsGroup, defaultFSGroup)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			// Changing the owner of every file at each start takes long on large volumes.
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		},
		Volumes:        b.newVolumes(inputs, sidecarVolumes),
		InitContainers: slices.Concat(checks, sidecars),
	}
	pod.Containers = []corev1.Container{b.newRunnerContainer(inputs, len(pod.InitContainers)+1)}
	if b.status.Workspace.ClaimRef.Name != "" {
		pod.SchedulingGates = []corev1.PodSchedulingGate{{Name: WorkspaceGate}}
	}
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		pod.Volumes = append(pod.Volumes, emptyDirVolume(sidecarTempVolume(i), c.Resources.Limits))
		completeContainer(c, spec)
	}
	completeContainer(&pod.Containers[0], spec)
	if spec.CABundle != nil {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: caBundleVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: spec.CABundle.Name},
			Items:                []corev1.KeyToPath{{Key: cmp.Or(spec.CABundle.Key, caBundleFile), Path: caBundleFile}},
		}}})
	}
	for _, volume := range from.Volumes {
		volume.Name = runnerVolumePrefix + volume.Name
		pod.Volumes = append(pod.Volumes, volume)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: podLabels(b.session, b.settings.runner), Annotations: template.Annotations}, Spec: pod,
	}
}

// completeContainer replaces the security context of a container with a restricted security context, and makes the container trust the
// certificate authorities of the SessionRunner. Variables that the SessionRunner sets take precedence.
func completeContainer(c *corev1.Container, spec *v1alpha1.SessionRunnerSpec) {
	c.SecurityContext = &corev1.SecurityContext{
		RunAsNonRoot:             new(true),
		Privileged:               new(false),
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
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

// newRunnerContainer returns the container of the runner in a Pod with this number of containers of all types.
func (b *objectBuilder) newRunnerContainer(inputs string, containers int) corev1.Container {
	spec := &b.settings.runner.Spec
	from := b.settings.container().DeepCopy()
	c := corev1.Container{
		Name: v1alpha1.RunnerContainer, Image: b.settings.image, ImagePullPolicy: from.ImagePullPolicy,
		Command: from.Command, Args: from.Args,
		Env:                      b.newEnvironment(inputs, containers),
		Resources:                b.settings.resources,
		TerminationMessagePath:   resultPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts: []corev1.VolumeMount{
			{Name: inputsVolume, MountPath: inputsPath, ReadOnly: true},
			{Name: workspaceVolume, MountPath: workspacePath},
			{Name: homeVolume, MountPath: homePath},
			{Name: tempVolume, MountPath: tempPath},
		},
	}
	for i := range b.session.Spec.SecretMounts {
		mount := &b.session.Spec.SecretMounts[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretVolumeName(i), MountPath: secretMountPath(mount), ReadOnly: true})
	}
	if b.settings.usesGit(b.session) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: gitVolume, MountPath: gitPath, ReadOnly: true})
	}
	if spec.Archive != nil {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: archiveVolume, MountPath: archivePath, ReadOnly: true})
	}
	if spec.Model != nil {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: modelVolume, MountPath: modelPath, ReadOnly: true})
	}
	if spec.ActivityLease {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true})
	}
	c.VolumeMounts = append(c.VolumeMounts, templateMounts(from)...)
	if b.session.Spec.Interactive {
		port := sessionPort(b.settings.runner, nil)
		c.Ports = []corev1.ContainerPort{{Name: sessionPortName, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
			PeriodSeconds: 2,
		}
	}
	return c
}

// sessionPort returns the port on which the runner of a Job accepts messages, or that of the next attempt if job is nil.
func sessionPort(runner *v1alpha1.SessionRunner, job *batchv1.Job) int32 {
	port := cmp.Or(runner.Spec.Network.Port, defaultSessionPort)
	if job != nil {
		port = cmp.Or(messagePort(job.Spec.Template.Spec.Containers), port)
	}
	return port
}

// newEnvironment returns the runner's variables: of the operator, the SessionRunner, the session, then its envFrom. A
// variable can refer only to earlier variables, so a session cannot change the value of another variable. Of variables
// with the same name, the first counts.
func (b *objectBuilder) newEnvironment(inputs string, containers int) []corev1.EnvVar {
	s := b.session
	env := []corev1.EnvVar{
		{Name: homeVariable, Value: homePath},
		{Name: tempVariable, Value: tempPath},
	}
	set := func(name, value string) {
		env = append(env, corev1.EnvVar{Name: v1alpha1.SessionEnvPrefix + name, Value: decision.LiteralValue(value)})
	}
	set("SESSION", s.Name)
	set("NAMESPACE", s.Namespace)
	set("RUN", strconv.Itoa(int(b.status.Run)))
	set("ATTEMPT", strconv.Itoa(int(b.status.Attempt.Attempt)))
	set("JOB", b.status.Attempt.JobName)
	set("PROMPT_FILE", inputsPath+"/"+promptKey)
	set("SESSION_FILE", inputsPath+"/"+sessionFileKey)
	set("WORKSPACE", workspacePath)
	set("RESULT_FILE", resultPath)
	set("RESULT_MAX_BYTES", strconv.Itoa(decision.TerminationMessageLimit(containers)))
	set("SDK_SESSION_ID", ptr.Deref(b.status.Result, v1alpha1.SessionResult{}).SDKSessionID)
	if b.settings.runner.Spec.ActivityLease {
		set("LEASE", LeaseName(s.Name))
	}
	if b.settings.usesGit(b.session) {
		set("GIT", gitPath)
	}
	if b.settings.runner.Spec.Archive != nil {
		set("ARCHIVE", archivePath)
	}
	if model := b.settings.runner.Spec.Model; model != nil {
		set("MODEL", modelPath)
		set("MODEL_PROVIDER", model.Provider)
	}
	if s.Spec.Interactive {
		set("PORT", strconv.Itoa(int(sessionPort(b.settings.runner, nil))))
	}
	env = append(env, b.newProxyVariables(inputs)...)
	setNames := map[string]bool{}
	for i := range env {
		setNames[env[i].Name] = true
	}
	for _, variable := range b.settings.container().DeepCopy().Env {
		if !setNames[variable.Name] {
			setNames[variable.Name] = true
			env = append(env, variable)
		}
	}
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if !setNames[name] {
			setNames[name] = true
			env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: inputs}, Key: variableKeyPrefix + name,
			}}})
		}
	}
	for _, variable := range b.settings.envFrom {
		if !setNames[variable.Name] {
			env = append(env, variable)
		}
	}
	return env
}

// newVolumes returns the volumes of the inputs, the workspace, the runner and the operator's sidecars.
func (b *objectBuilder) newVolumes(inputs string, ofSidecars []corev1.Volume) []corev1.Volume {
	workspace := corev1.Volume{Name: workspaceVolume}
	if claim := b.status.Workspace.ClaimRef.Name; claim != "" {
		workspace.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	} else {
		workspace.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: new(b.settings.workspaceSize)}
	}
	limits := b.settings.resources.Limits
	volumes := []corev1.Volume{
		{Name: inputsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: inputs, DefaultMode: new(int32(0o440)),
			Items: []corev1.KeyToPath{{Key: promptKey, Path: promptKey}, {Key: sessionFileKey, Path: sessionFileKey}},
		}}},
		workspace,
		emptyDirVolume(homeVolume, limits),
		emptyDirVolume(tempVolume, limits),
	}
	for i := range b.session.Spec.SecretMounts {
		mount := &b.session.Spec.SecretMounts[i]
		var items []corev1.KeyToPath // nil: all files
		// checkSecretMounts has found the Secret in the list.
		for _, key := range findSource(b.settings.runner.Spec.Allowed.Secrets, mount.Name).Keys {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
		volumes = append(volumes, corev1.Volume{Name: secretVolumeName(i), VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: mount.Name, DefaultMode: new(int32(0o440)), Optional: new(mount.Optional), Items: items,
		}}})
	}
	volumes = append(volumes, ofSidecars...)
	if b.settings.runner.Spec.ActivityLease {
		// The token renews the Lease, in the layout that client libraries expect. Only the runner's container mounts it.
		volumes = append(volumes, corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
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
		}}})
	}
	return volumes
}

// emptyDirVolume returns a volume with the limit of the container's ephemeral storage.
func emptyDirVolume(name string, limits corev1.ResourceList) corev1.Volume {
	source := &corev1.EmptyDirVolumeSource{}
	if limit, limited := limits[corev1.ResourceEphemeralStorage]; limited {
		source.SizeLimit = &limit
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: source}}
}

func secretVolumeName(index int) string { return fmt.Sprintf("secret-%d", index) }

func secretMountPath(mount *v1alpha1.SecretMount) string {
	if mount.MountPath != "" {
		return mount.MountPath
	}
	return secretsPath + "/" + mount.Name
}

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
