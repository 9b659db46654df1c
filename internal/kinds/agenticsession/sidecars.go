package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
)

const (
	// GitContainer clones and pushes.
	GitContainer = "git"

	gitVolume            = "git"
	gitPath              = "/git"
	gitCredentialsVolume = "git-credentials"
	gitCredentialsPath   = "/etc/agentic-git" //nolint:gosec // the path of credentials, not credentials

	// ArchiveContainer archives transcripts.
	ArchiveContainer = "archive"

	archiveVolume            = "archive"
	archivePath              = "/archive"
	archiveClaimVolume       = "archive-claim"
	archiveClaimPath         = "/transcripts"
	archiveCredentialsVolume = "archive-credentials"  //nolint:gosec // the name of a volume, not credentials
	archiveCredentialsPath   = "/etc/agentic-archive" //nolint:gosec // the path of credentials, not credentials

	// ModelContainer is the proxy between the agent and its model.
	ModelContainer = "model"

	modelVolume       = "model"
	modelPath         = "/model"
	modelKeyVolume    = "model-key"
	modelKeyPath      = "/etc/agentic-model"
	modelPricesVolume = "model-prices"
	modelPricesPath   = "/etc/agentic-prices"
	modelPricesFile   = "prices.yaml"
)

// newSidecars returns the native sidecars of the Pod, which start before the runner and end after it, in the order of their start, and
// the volumes of the operator's sidecars. first is the index of the first sidecar among the init containers of the Pod.
func (b *objectBuilder) newSidecars(inputs string, first int) (sidecars []corev1.Container, volumes []corev1.Volume) {
	for i, c := range b.settings.template.Spec.DeepCopy().InitContainers {
		c.Resources = fillResources(c.Resources, sidecarDefaults)
		if probe := c.StartupProbe; probe != nil { // the kubelet sends probes, so no NetworkPolicy stops a probe of another host
			if probe.HTTPGet != nil {
				probe.HTTPGet.Host = ""
			}
			if probe.TCPSocket != nil {
				probe.TCPSocket.Host = ""
			}
			probe.TerminationGracePeriodSeconds = nil
		}
		c.VolumeMounts = append([]corev1.VolumeMount{{Name: sidecarTempVolume(first + i), MountPath: tempPath}}, templateMounts(&c)...)
		for _, variable := range b.newProxyVariables(inputs) {
			if !slices.ContainsFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == variable.Name }) {
				c.Env = append(c.Env, variable)
			}
		}
		sidecars = append(sidecars, c)
	}
	for _, build := range []func(temp corev1.VolumeMount) (*corev1.Container, []corev1.Volume){b.newGitSidecar, b.newArchiveSidecar, b.newModelSidecar} {
		c, itsVolumes := build(corev1.VolumeMount{Name: sidecarTempVolume(first + len(sidecars)), MountPath: tempPath})
		if c != nil {
			c.ImagePullPolicy, c.Command = b.settings.container().ImagePullPolicy, []string{"session-runner"}
			c.Env = append(c.Env, b.newProxyVariables(inputs)...)
			sidecars, volumes = append(sidecars, *c), append(volumes, itsVolumes...)
		}
	}
	for i := range sidecars {
		c := &sidecars[i]
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		c.TerminationMessagePath, c.TerminationMessagePolicy = resultPath, corev1.TerminationMessageReadFile
	}
	return sidecars, volumes
}

func sidecarTempVolume(index int) string { return fmt.Sprintf("sidecar-%d-tmp", index) }

// usesGit reports whether the Pod of a session has the GitContainer.
func (r *runnerSettings) usesGit(s *v1alpha1.AgenticSession) bool {
	return r.runner.Spec.Git != nil && (len(s.Spec.Repos) > 0 || s.Spec.Agent.Workflow != nil)
}

// newGitSidecar returns the container that clones and pushes, and the volumes with the clones, which the runner reads, and with the
// credentials; nil without git. Only this container mounts the credentials. It does not mount the workspace, because programs that the
// agent writes there must not run with the credentials.
func (b *objectBuilder) newGitSidecar(temp corev1.VolumeMount) (*corev1.Container, []corev1.Volume) {
	if !b.settings.usesGit(b.session) {
		return nil, nil
	}
	spec := &b.settings.runner.Spec
	git := spec.Git
	c := &corev1.Container{
		Name: GitContainer, Image: cmp.Or(git.Image, spec.Image), Args: []string{"git", "--directory=" + gitPath},
		Env: []corev1.EnvVar{
			{Name: v1alpha1.SessionEnvPrefix + "SESSION", Value: b.session.Name},
			{Name: v1alpha1.SessionEnvPrefix + "SESSION_FILE", Value: inputsPath + "/" + sessionFileKey},
		},
		Resources: fillResources(git.Resources, sidecarDefaults),
		VolumeMounts: []corev1.VolumeMount{
			{Name: inputsVolume, MountPath: inputsPath, ReadOnly: true},
			{Name: gitVolume, MountPath: gitPath},
			temp,
		},
	}
	volumes := []corev1.Volume{emptyDirVolume(gitVolume, c.Resources.Limits)}
	if git.SecretRef != nil {
		c.Args = append(c.Args, "--credentials="+gitCredentialsPath, "--repositories="+strings.Join(git.Repositories, ","))
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: gitCredentialsVolume, MountPath: gitCredentialsPath, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: gitCredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: git.SecretRef.Name, DefaultMode: new(int32(0o440)),
		}}})
	}
	if forge := git.Forge; forge != nil {
		c.Args = append(c.Args, "--forge="+forge.Type, "--forge-url="+decision.LiteralValue(forge.APIURL))
	}
	return c, volumes
}

// newArchiveSidecar returns the container that archives the transcript, and the volumes with its socket, and with the transcripts or the
// credentials; nil without an archive. Only this container mounts the archive; the runner connects to it through the socket.
func (b *objectBuilder) newArchiveSidecar(temp corev1.VolumeMount) (*corev1.Container, []corev1.Volume) {
	spec := &b.settings.runner.Spec
	archive := spec.Archive
	if archive == nil {
		return nil, nil
	}
	c := &corev1.Container{
		Name: ArchiveContainer, Image: cmp.Or(archive.Image, spec.Image), Args: []string{"archive", "--directory=" + archivePath},
		Env: []corev1.EnvVar{
			{Name: tempVariable, Value: tempPath},
			{Name: v1alpha1.SessionEnvPrefix + "SESSION", Value: b.session.Name},
			{Name: v1alpha1.SessionEnvPrefix + "NAMESPACE", Value: b.session.Namespace},
			{Name: v1alpha1.SessionEnvPrefix + "JOB", Value: b.status.Attempt.JobName},
		},
		Resources:    fillResources(archive.Resources, sidecarDefaults),
		VolumeMounts: []corev1.VolumeMount{{Name: archiveVolume, MountPath: archivePath}, temp},
	}
	volumes := []corev1.Volume{emptyDirVolume(archiveVolume, c.Resources.Limits)}
	if s3 := archive.S3; s3 != nil {
		c.Args = append(c.Args, decision.BucketFlags(s3, archiveCredentialsPath)...)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: archiveCredentialsVolume, MountPath: archiveCredentialsPath, ReadOnly: true})
		return c, append(volumes, corev1.Volume{Name: archiveCredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: s3.SecretRef.Name, DefaultMode: new(int32(0o440)),
		}}})
	}
	c.Args = append(c.Args, "--claim="+archiveClaimPath)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: archiveClaimVolume, MountPath: archiveClaimPath})
	return c, append(volumes, corev1.Volume{Name: archiveClaimVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: archive.ClaimRef.Name},
	}})
}

// newModelSidecar returns the proxy between the agent and its model, and the volumes with the token of the Pod, the key of the provider,
// and the prices; nil without a model. Only this container mounts the key. What it spent is in its own temporary directory, so that its
// restart does not forget it, and in the message with which it ends, which nothing else in the Pod can write.
func (b *objectBuilder) newModelSidecar(temp corev1.VolumeMount) (*corev1.Container, []corev1.Volume) {
	spec := &b.settings.runner.Spec
	model := spec.Model
	if model == nil {
		return nil, nil
	}
	key := modelproxy.KeyOf(model.Provider)
	c := &corev1.Container{
		Name: ModelContainer, Image: spec.Image, Resources: sidecarDefaults,
		Args: []string{
			"model", "--provider=" + model.Provider, "--directory=" + modelPath, "--keys=" + modelKeyPath, "--ledger=" + tempPath, "--message=" + resultPath,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: modelVolume, MountPath: modelPath},
			{Name: modelKeyVolume, MountPath: modelKeyPath, ReadOnly: true},
			temp,
		},
	}
	volumes := []corev1.Volume{
		emptyDirVolume(modelVolume, sidecarDefaults.Limits),
		{Name: modelKeyVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: model.SecretRef.Name, DefaultMode: new(int32(0o440)), Items: []corev1.KeyToPath{{Key: key, Path: key}},
		}}},
	}
	if model.BaseURL != "" {
		c.Args = append(c.Args, "--base-url="+decision.LiteralValue(model.BaseURL))
	}
	if prices := model.Prices; prices != nil {
		c.Args = append(c.Args, "--prices="+modelPricesPath+"/"+modelPricesFile)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: modelPricesVolume, MountPath: modelPricesPath, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: modelPricesVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: prices.Name},
			Items:                []corev1.KeyToPath{{Key: cmp.Or(prices.Key, modelPricesFile), Path: modelPricesFile}},
		}}})
	}
	if b.budget != nil {
		c.Args = append(c.Args, "--limit-usd="+string(formatDollars(*b.budget)))
	}
	return c, volumes
}
