package agenticsession

import (
	"cmp"
	"slices"

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
		{Name: sidecarTempVolume(len(b.newCheckContainers()) + len(spec.Sidecars) + len(b.newGitContainers(inputs))), MountPath: tempPath},
	}
	if s3 := archive.S3; s3 != nil {
		args = append(args, decision.BucketFlags(s3, archiveCredentialsPath)...)
		mounts = append(mounts, corev1.VolumeMount{Name: archiveCredentialsVolume, MountPath: archiveCredentialsPath, ReadOnly: true})
	} else {
		args = append(args, "--claim="+archiveClaimPath)
		mounts = append(mounts, corev1.VolumeMount{Name: archiveClaimVolume, MountPath: archiveClaimPath})
	}
	return []corev1.Container{{
		Name: ArchiveContainer, Image: cmp.Or(archive.Image, spec.Image), Command: []string{"session-runner"}, Args: args,
		Env: append([]corev1.EnvVar{
			{Name: tempVariable, Value: tempPath},
			{Name: v1alpha1.SessionEnvPrefix + "SESSION", Value: b.session.Name},
			{Name: v1alpha1.SessionEnvPrefix + "NAMESPACE", Value: b.session.Namespace},
			{Name: v1alpha1.SessionEnvPrefix + "JOB", Value: b.status.Attempt.JobName},
		}, b.newProxyVariables(inputs)...),
		Resources:                resourceRequirements(fillResources(archive.Resources, sidecarDefaults)),
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
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: archive.ClaimName},
		}})
	}
	return append(volumes, corev1.Volume{Name: archiveCredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: archive.S3.SecretName, DefaultMode: new(int32(0o440)),
	}}})
}

func validateArchive(spec *v1alpha1.SessionRunnerSpec) []string {
	archive := spec.Archive
	if archive == nil {
		return nil
	}
	var problems []string
	if slices.ContainsFunc(spec.Sidecars, func(s v1alpha1.SessionSidecar) bool { return s.Name == ArchiveContainer }) {
		problems = append(problems, "sidecar must not be named "+ArchiveContainer+", because archive has a container of this name")
	}
	if (archive.ClaimName == "") == (archive.S3 == nil) { // an older CRD may not reject it
		return append(problems, "archive: set exactly one of claimName and s3")
	}
	if archive.S3 != nil {
		keys := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
		return append(problems, secretProblems(spec, archive.S3.SecretName, keys, ", so its agent could read the credentials of the archive")...)
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim == archive.ClaimName {
			problems = append(problems, "volume "+spec.Volumes[i].Name+" contains the claim "+archive.ClaimName+", so its agent could read the archive")
		}
	}
	return problems
}
