package agenticsession

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var (
	archiveInBucket = &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{
		Endpoint: "https://s3.example", Bucket: "transcripts", Prefix: "team", Region: "eu-central-1", SecretRef: v1alpha1.LocalReference{Name: "archive"},
	}}}
	archiveInClaim = &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}}
)

func setArchive(archive *v1alpha1.SessionArchive) func(*scenario) {
	return func(s *scenario) { s.Runner.Spec.Archive = archive.DeepCopy() }
}

// Containers of the operator have credentials, and mount nothing that another container, and so the agent, can write.
func TestOnlyTheContainersOfTheOperatorHaveCredentials(t *testing.T) {
	gitVariable, archiveVariable := corev1.EnvVar{Name: "AGENTIC_GIT", Value: gitPath}, corev1.EnvVar{Name: "AGENTIC_ARCHIVE", Value: archivePath}
	modelVariable := corev1.EnvVar{Name: "AGENTIC_MODEL_PROVIDER", Value: "Anthropic"}
	const modelArguments = "model --provider=Anthropic --directory=/model --keys=/etc/agentic-model --ledger=/tmp --message=/dev/termination-log"
	for title, row := range map[string]struct {
		change func(*scenario)
		// container with the credentials in a volume, whose source has this name.
		container, volume, source string
		// socket is the volume with which the runner reaches it, and variable names it.
		socket   string
		variable corev1.EnvVar
		args     string
	}{
		"git": {
			func(*scenario) {}, GitContainer, gitCredentialsVolume, "forge", gitVolume, gitVariable,
			"git --directory=/git --credentials=/etc/agentic-git --repositories=git.example/team/* --forge=GitLab --forge-url=https://git.example/api",
		},
		"an archive in a bucket": {
			setArchive(archiveInBucket), ArchiveContainer, archiveCredentialsVolume, "archive", archiveVolume, archiveVariable,
			"archive --directory=/archive --endpoint=https://s3.example --bucket=transcripts --prefix=team --region=eu-central-1 --credentials=/etc/agentic-archive",
		},
		"an archive in a claim": {
			setArchive(archiveInClaim), ArchiveContainer, archiveClaimVolume, "transcripts", archiveVolume, archiveVariable,
			"archive --directory=/archive --claim=/transcripts",
		},
		"a model": {func(s *scenario) { setModel(s) }, ModelContainer, modelKeyVolume, "provider", modelVolume, modelVariable, modelArguments},
		"a model with prices and a limit": {
			func(s *scenario) {
				model := setModel(s).Runner.Spec.Model
				model.Prices, model.BaseURL = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "prices"}}, "https://gateway.example/$(HOME)"
				s.Session.Spec.Limits.MaxCostUSD = new(v1alpha1.Number("5"))
			}, ModelContainer, modelKeyVolume, "provider", modelVolume, modelVariable,
			modelArguments + " --base-url=https://gateway.example/$$(HOME) --prices=/etc/agentic-prices/prices.yaml --limit-usd=5",
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newGitScenario(t)
			row.change(s)
			pod := s.startAttempt().podSpec()
			own := corev1.Container{}
			for _, c := range pod.InitContainers {
				if c.Name == row.container {
					own = c
				}
			}
			mounts := mountsOf(&own)
			require.Equal(t, row.args, strings.Join(own.Args, " "))
			require.True(t, mounts[row.volume].ReadOnly == (row.volume != archiveClaimVolume) && !mounts[row.socket].ReadOnly &&
				own.Image == s.Runner.Spec.Image && *own.RestartPolicy == corev1.ContainerRestartPolicyAlways, "the container is %+v", own)
			for name := range mounts {
				require.True(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }),
					"the Pod has no volume %s", name)
			}
			for _, other := range slices.Concat(pod.InitContainers, pod.Containers) {
				if other.Name == row.container {
					continue
				}
				for name, mount := range mountsOf(&other) {
					_, isShared := mounts[name]
					require.True(t, !isShared || name != row.volume && mount.ReadOnly, "container %s mounts %+v", other.Name, mount)
				}
				raw, err := json.Marshal(other)
				require.NoError(t, err)
				require.True(t, !strings.Contains(string(raw), `Ref":{"name":"`+row.source+`"`),
					"container %s refers to %s: %s", other.Name, row.source, raw)
			}
			for _, volume := range pod.Volumes {
				isOfModel := volume.Secret != nil && volume.Secret.SecretName == "provider"
				require.True(t, !isOfModel || volume.Name == modelKeyVolume && len(volume.Secret.Items) == 1, "volume %+v", volume)
			}
			runner := &pod.Containers[0]
			require.True(t, mountsOf(runner)[row.socket].ReadOnly && slices.Contains(runner.Env, row.variable), "the runner is %+v", runner)
		})
	}
}

func TestCredentialsThatTheAgentCouldReadAreRefused(t *testing.T) {
	const anotherKey = "with another key, which is accepted"
	variable := func(spec *v1alpha1.SessionRunnerSpec, secret, key string) {
		testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
		}}}}
	}
	for want, row := range map[string]struct {
		change func(*scenario)
		secret string
		keys   []string
	}{
		"the agent could read the credentials of git":         {func(*scenario) {}, "forge", []string{"password", "githubAppPrivateKey"}},
		"the agent could read the credentials of the archive": {setArchive(archiveInBucket), "archive", []string{"AWS_SECRET_ACCESS_KEY"}},
		"the agent could read the key of the model":           {func(s *scenario) { setModel(s) }, "provider", []string{"ANTHROPIC_API_KEY"}},
	} {
		for _, key := range row.keys {
			for way, change := range map[string]func(spec *v1alpha1.SessionRunnerSpec){
				"in allowed.secrets": func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(row.secret)}
				},
				"in allowed.secrets with its key": func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(row.secret, "OTHER", key)}
				},
				"in volumes": func(spec *v1alpha1.SessionRunnerSpec) {
					testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.SecretVolume(row.secret))
				},
				"in env": func(spec *v1alpha1.SessionRunnerSpec) { variable(spec, row.secret, key) },
				anotherKey: func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(row.secret, "OTHER")}
					variable(spec, row.secret, "OTHER")
				},
			} {
				t.Run(row.secret+" "+key+" "+way, func(t *testing.T) {
					s := newGitScenario(t)
					s.Session.Spec.SecretMounts, s.Session.Spec.EnvFrom = nil, nil
					row.change(s)
					change(&s.Runner.Spec)
					if way == anotherKey {
						s.startAttempt()
					} else {
						s.wantNotAccepted(want)
					}
				})
			}
		}
	}
}

func TestArchiveThatTheAgentCouldReadIsRefused(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.SessionRunnerSpec){
		"could read the archive in the claim transcripts": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.ClaimVolume("transcripts"))
		},
		"overlaps with /archive": func(spec *v1alpha1.SessionRunnerSpec) { // in the directory of the socket
			testbuilder.MountVolume(spec, "a", archivePath, testbuilder.ConfigMapVolume("a"))
		},
		"exactly one of claimRef and s3": func(spec *v1alpha1.SessionRunnerSpec) { spec.Archive = &v1alpha1.SessionArchive{} },
	} {
		t.Run(want, func(t *testing.T) {
			s := newScenario(t)
			setArchive(archiveInClaim)(s)
			change(&s.Runner.Spec)
			s.wantNotAccepted(want)
		})
	}
}

func TestNoSidecarHasTheNameOfAContainerThatReports(t *testing.T) {
	for _, name := range []string{v1alpha1.RunnerContainer, checkContainer, GitContainer, ArchiveContainer, ModelContainer} {
		s := newScenario(t)
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar(name, "x")}
		s.wantNotAccepted("another container of the Pod has this name")
	}
}

func newGitScenario(t *testing.T) *scenario {
	t.Helper()
	s := newFullScenario(t)
	s.Session.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/team/shop.git", Branch: "main"}, AutoPush: true}}
	s.Runner.Spec.Git = &v1alpha1.SessionGit{
		SecretRef: &v1alpha1.LocalReference{Name: "forge"}, Repositories: []string{"git.example/team/*"}, Forge: &v1alpha1.SessionForge{Type: "GitLab", APIURL: "https://git.example/api"},
	}
	return s
}

func mountsOf(c *corev1.Container) map[string]corev1.VolumeMount {
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range c.VolumeMounts {
		mounts[mount.Name] = mount
	}
	return mounts
}

func TestASessionWithoutRepositoriesHasNoGitContainer(t *testing.T) {
	s := newGitScenario(t)
	s.Session.Spec.Repos, s.Session.Spec.Agent.Workflow = nil, nil
	pod := s.startAttempt().podSpec()
	if slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == GitContainer }) ||
		slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == gitCredentialsVolume || v.Name == gitVolume }) {
		t.Error("the Pod has the container or its volumes")
	}
}

// internal/pod/sessiongit tries many URLs.
func TestASessionOfARepositoryThatIsNotListedDoesNotStart(t *testing.T) {
	const url = "https://git.example/other/secret.git"
	for field, change := range map[string]func(*v1alpha1.AgenticSession){
		"spec.repos[1].url": func(s *v1alpha1.AgenticSession) {
			s.Spec.Repos = append(s.Spec.Repos, v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: url}})
		},
		"spec.agent.workflow.url": func(s *v1alpha1.AgenticSession) {
			s.Spec.Agent.Workflow = &v1alpha1.SessionWorkflow{GitSource: v1alpha1.GitSource{URL: url}}
		},
	} {
		t.Run(field, func(t *testing.T) {
			s := newGitScenario(t)
			change(s.Session)
			const want = ": Forbidden: git.repositories of SessionRunner default has only git.example/team/* of this host: add git.example/other/secret there"
			s.wantNotAccepted(field + want)
			s.Runner.Spec.Git = &v1alpha1.SessionGit{} // without credentials
			s.startAttempt()
		})
	}
}
