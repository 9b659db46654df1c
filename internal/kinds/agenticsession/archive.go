package agenticsession

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// ArchiveContainer archives transcripts.
	ArchiveContainer = "archive"

	archiveVolume            = "archive"
	archivePath              = "/archive"
	archiveClaimVolume       = "archive-claim"
	archiveClaimPath         = "/transcripts"
	archiveCredentialsVolume = "archive-credentials"  //nolint:gosec // the name of a volume, not credentials
	archiveCredentialsPath   = "/etc/agentic-archive" //nolint:gosec // the path of credentials, not credentials
)

// newArchiveContainers returns the container that archives the transcript: a native sidecar, which ends after the
// runner. Only this container mounts the archive; the runner connects to it through a socket in a volume.
func (b *objectBuilder) newArchiveContainers(inputs string) []corev1.Container {
	spec := &b.settings.runner.Spec
	archive := spec.Archive
	if archive == nil {
		return nil
	}
	args := []string{"archive", "--directory=" + archivePath}
	mounts := []corev1.VolumeMount{
		{Name: archiveVolume, MountPath: archivePath},
		{Name: sidecarTempVolume(len(b.newCheckContainers()) + len(b.settings.template.Spec.InitContainers) + len(b.newGitContainers(inputs))), MountPath: tempPath},
	}
	if s3 := archive.S3; s3 != nil {
		args = append(args, decision.BucketFlags(s3, archiveCredentialsPath)...)
		mounts = append(mounts, corev1.VolumeMount{Name: archiveCredentialsVolume, MountPath: archiveCredentialsPath, ReadOnly: true})
	} else {
		args = append(args, "--claim="+archiveClaimPath)
		mounts = append(mounts, corev1.VolumeMount{Name: archiveClaimVolume, MountPath: archiveClaimPath})
	}
	return []corev1.Container{{
		Name: ArchiveContainer, Image: cmp.Or(archive.Image, spec.Image), ImagePullPolicy: b.settings.container().ImagePullPolicy,
		Command: []string{"session-runner"}, Args: args,
		Env: append([]corev1.EnvVar{
			{Name: tempVariable, Value: tempPath},
			{Name: v1alpha1.SessionEnvPrefix + "SESSION", Value: b.session.Name},
			{Name: v1alpha1.SessionEnvPrefix + "NAMESPACE", Value: b.session.Namespace},
			{Name: v1alpha1.SessionEnvPrefix + "JOB", Value: b.status.Attempt.JobName},
		}, b.newProxyVariables(inputs)...),
		Resources:                fillResources(archive.Resources, sidecarDefaults),
		RestartPolicy:            new(corev1.ContainerRestartPolicyAlways),
		TerminationMessagePath:   resultPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             mounts,
	}}
}

// newArchiveVolumes returns the volumes with the socket, and with the transcripts or the credentials.
func (b *objectBuilder) newArchiveVolumes() []corev1.Volume {
	archive := b.settings.runner.Spec.Archive
	if archive == nil {
		return nil
	}
	volumes := []corev1.Volume{emptyDirVolume(archiveVolume, fillResources(archive.Resources, sidecarDefaults).Limits)}
	if archive.S3 == nil {
		return append(volumes, corev1.Volume{Name: archiveClaimVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: archive.ClaimRef.Name},
		}})
	}
	return append(volumes, corev1.Volume{Name: archiveCredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: archive.S3.SecretRef.Name, DefaultMode: new(int32(0o440)),
	}}})
}
