package agenticsession

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func s3Archive() *v1alpha1.SessionArchive {
	return &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{
		Endpoint: "https://s3.example", Bucket: "transcripts", Prefix: "team", Region: "eu-central-1", SecretRef: v1alpha1.LocalReference{Name: "archive"},
	}}}
}

// newArchiveScenario returns a session whose SessionRunner archives transcripts.
func newArchiveScenario(t *testing.T, archive *v1alpha1.SessionArchive) *scenario {
	t.Helper()
	s := newGitScenario(t)
	s.Runner.Spec.Archive = archive
	return s
}

func TestOnlyTheArchiveContainerMountsTheArchive(t *testing.T) {
	for volume, c := range map[string]struct {
		archive *v1alpha1.SessionArchive
		args    string
	}{
		archiveCredentialsVolume: {s3Archive(), "archive --directory=/archive --endpoint=https://s3.example --bucket=transcripts --prefix=team --region=eu-central-1 --credentials=/etc/agentic-archive"},
		archiveClaimVolume:       {&v1alpha1.SessionArchive{Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}}, "archive --directory=/archive --claim=/transcripts"},
	} {
		s := newArchiveScenario(t, c.archive)
		decision := s.decideAndRecord()
		if decision.CreateJob == nil {
			t.Fatalf("%+v", decision.Status.Conditions)
		}
		pod := decision.CreateJob.Spec.Template.Spec
		for _, result := range restrictedEvaluator(t)(&decision.CreateJob.Spec.Template.ObjectMeta, &pod) {
			if !result.Allowed {
				t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		found := false
		for i := range pod.InitContainers {
			container := &pod.InitContainers[i]
			_, mounts := mountsOf(container)[volume]
			if isArchive := container.Name == ArchiveContainer; isArchive != mounts {
				t.Errorf("container %s mounts %s: %v", container.Name, volume, mounts)
			} else if isArchive {
				found = true
				if got := strings.Join(container.Args, " "); got != c.args {
					t.Errorf("arguments %s", got)
				}
				if _, mounts := mountsOf(container)[workspaceVolume]; mounts || *container.RestartPolicy != corev1.ContainerRestartPolicyAlways {
					t.Errorf("the container is %+v", container)
				}
			}
		}
		runner := mountsOf(&pod.Containers[0])
		if _, mounts := runner[volume]; mounts || !found || !runner[archiveVolume].ReadOnly {
			t.Errorf("the runner mounts %+v", runner)
		}
		for name := range mountsOf(&pod.InitContainers[len(pod.InitContainers)-1]) {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
				t.Errorf("the Pod has no volume %s", name)
			}
		}
		if !slices.ContainsFunc(pod.Containers[0].Env, func(v corev1.EnvVar) bool { return v.Name == "AGENTIC_ARCHIVE" && v.Value == archivePath }) {
			t.Error("the runner does not get AGENTIC_ARCHIVE")
		}
	}
}

func TestArchiveThatTheAgentCouldReadIsRefused(t *testing.T) {
	claim := &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}}
	for title, c := range map[string]struct {
		archive *v1alpha1.SessionArchive
		change  func(*v1alpha1.SessionRunnerSpec)
		want    string
	}{
		"credentials in allowedSecrets": {s3Archive(), func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("archive")}
		}, "could read the credentials of the archive"},
		"credentials in volumes": {s3Archive(), func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.SecretVolume("archive"))
		}, "could read the credentials of the archive"},
		"credentials in env": {s3Archive(), func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "archive"}, Key: "AWS_SECRET_ACCESS_KEY",
			}}}}
		}, "could read the credentials of the archive"},
		"claim in volumes": {claim, func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.ClaimVolume("transcripts"))
		}, "could read the archive"},
		"volume in the directory of the socket": {claim, func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", archivePath, testbuilder.ConfigMapVolume("a"))
		}, "overlaps with /archive"},
		"sidecar of the same name": {claim, func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{testbuilder.Sidecar(ArchiveContainer, "x")}
		}, "another container of the Pod has this name"},
		"neither claim nor bucket": {&v1alpha1.SessionArchive{}, func(*v1alpha1.SessionRunnerSpec) {}, "exactly one of claimRef and s3"},
	} {
		s := newArchiveScenario(t, c.archive)
		s.Session.Spec.SecretMounts, s.Session.Spec.EnvFrom = nil, nil
		c.change(&s.Runner.Spec)
		decision := s.decideAndRecord()
		if got := messageOf(decision, v1alpha1.ConditionSpecAccepted); decision.CreateJob != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: accepted: %s", title, got)
		}
	}
}

func TestTranscriptOfAResultIsParsed(t *testing.T) {
	got, err := ParseResult(`{"transcript": {"location": "s3://a/b", "truncated": true, "new": 1}}`)
	if err != nil || *got.Transcript != (v1alpha1.ArchiveResult{Location: "s3://a/b", Truncated: true}) {
		t.Errorf("result %+v, error %v", got, err)
	}
	if got, err := ParseResult(`{"transcript": {"location": "` + strings.Repeat("x", maxLocation+1) + `"}}`); err == nil {
		t.Errorf("%+v", got)
	}
}
