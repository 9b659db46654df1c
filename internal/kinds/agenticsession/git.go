package agenticsession

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// GitContainer clones and pushes.
	GitContainer = "git"

	gitVolume            = "git"
	gitPath              = "/git"
	gitCredentialsVolume = "git-credentials"
	gitCredentialsPath   = "/etc/agentic-git" //nolint:gosec // the path of credentials, not credentials
)

func (b *objectBuilder) usesGit() bool { return b.settings.usesGit(b.session) }

// usesGit reports whether the Pod of a session has the GitContainer.
func (r *runnerSettings) usesGit(s *v1alpha1.AgenticSession) bool {
	return r.runner.Spec.Git != nil && (len(s.Spec.Repos) > 0 || s.Spec.Agent.Workflow != nil)
}

// newGitContainers returns the container that clones and pushes: a native sidecar, which ends after the runner. Only
// this container mounts the credentials. It does not mount the workspace, because programs that the agent writes there
// must not run with the credentials.
func (b *objectBuilder) newGitContainers(inputs string) []corev1.Container {
	if !b.usesGit() {
		return nil
	}
	spec := &b.settings.runner.Spec
	git := spec.Git
	args := []string{"git", "--directory=" + gitPath}
	mounts := []corev1.VolumeMount{
		{Name: inputsVolume, MountPath: inputsPath, ReadOnly: true},
		{Name: gitVolume, MountPath: gitPath},
		{Name: sidecarTempVolume(len(b.newCheckContainers()) + len(b.settings.template.Spec.InitContainers)), MountPath: tempPath},
	}
	if git.SecretRef != nil {
		args = append(args, "--credentials="+gitCredentialsPath, "--repositories="+strings.Join(git.Repositories, ","))
		mounts = append(mounts, corev1.VolumeMount{Name: gitCredentialsVolume, MountPath: gitCredentialsPath, ReadOnly: true})
	}
	if forge := git.Forge; forge != nil {
		args = append(args, "--forge="+forge.Type, "--forge-url="+decision.LiteralValue(forge.APIURL))
	}
	return []corev1.Container{{
		Name: GitContainer, Image: cmp.Or(git.Image, spec.Image), ImagePullPolicy: b.settings.container().ImagePullPolicy,
		Command: []string{"session-runner"}, Args: args,
		Env: append([]corev1.EnvVar{
			{Name: v1alpha1.SessionEnvPrefix + "SESSION", Value: b.session.Name},
			{Name: v1alpha1.SessionEnvPrefix + "SESSION_FILE", Value: inputsPath + "/" + sessionFileKey},
		}, b.newProxyVariables(inputs)...),
		Resources:                fillResources(git.Resources, sidecarDefaults),
		RestartPolicy:            new(corev1.ContainerRestartPolicyAlways),
		TerminationMessagePath:   resultPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             mounts,
	}}
}

// newGitVolumes returns the volumes with the clones, which the runner reads, and with the credentials.
func (b *objectBuilder) newGitVolumes() []corev1.Volume {
	if !b.usesGit() {
		return nil
	}
	git := b.settings.runner.Spec.Git
	volumes := []corev1.Volume{emptyDirVolume(gitVolume, fillResources(git.Resources, sidecarDefaults).Limits)}
	if git.SecretRef != nil {
		volumes = append(volumes, corev1.Volume{Name: gitCredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: git.SecretRef.Name, DefaultMode: new(int32(0o440)),
		}}})
	}
	return volumes
}
