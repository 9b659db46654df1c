package agenticsession

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// newGitScenario returns a session whose repositories a container clones and pushes.
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

func TestOnlyTheGitContainerMountsTheCredentials(t *testing.T) {
	s := newGitScenario(t)
	decision := s.decideAndRecord()
	if decision.CreateJob == nil {
		t.Fatalf("%+v", decision.Status.Conditions)
	}
	pod := decision.CreateJob.Spec.Template.Spec
	var git *corev1.Container
	for i := range pod.InitContainers {
		if c := &pod.InitContainers[i]; c.Name == GitContainer {
			git = c
		} else if _, found := mountsOf(c)[gitCredentialsVolume]; found {
			t.Errorf("container %s mounts the credentials", c.Name)
		}
	}
	runner := mountsOf(&pod.Containers[0])
	if _, found := runner[gitCredentialsVolume]; found || !runner[gitVolume].ReadOnly || runner[gitVolume].MountPath != gitPath {
		t.Errorf("the runner mounts %+v", runner)
	}
	if git == nil {
		t.Fatal("there is no container for git")
	}
	mounts := mountsOf(git)
	if _, found := mounts[workspaceVolume]; found {
		t.Error("the container with the credentials mounts what the agent writes")
	}
	if !mounts[gitCredentialsVolume].ReadOnly || mounts[gitVolume].ReadOnly || git.Image != s.Runner.Spec.Image || *git.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("the container is %+v", git)
	}
	want := "git --directory=/git --credentials=/etc/agentic-git --repositories=git.example/team/* --forge=GitLab --forge-url=https://git.example/api"
	if got := strings.Join(git.Args, " "); got != want {
		t.Errorf("arguments %s", got)
	}
	volumes := map[string]bool{}
	for i := range pod.Volumes {
		volumes[pod.Volumes[i].Name] = true
	}
	for name := range mounts {
		if !volumes[name] {
			t.Errorf("the Pod has no volume %s", name)
		}
	}
	if !slices.ContainsFunc(pod.Containers[0].Env, func(v corev1.EnvVar) bool { return v.Name == "AGENTIC_GIT" && v.Value == gitPath }) {
		t.Error("the runner does not get AGENTIC_GIT")
	}
}

func TestASessionWithoutRepositoriesHasNoGitContainer(t *testing.T) {
	s := newGitScenario(t)
	s.Session.Spec.Repos, s.Session.Spec.Agent.Workflow = nil, nil
	decision := s.decideAndRecord()
	if decision.CreateJob == nil {
		t.Fatalf("%+v", decision.Status.Conditions)
	}
	pod := decision.CreateJob.Spec.Template.Spec
	if slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == GitContainer }) ||
		slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == gitCredentialsVolume || v.Name == gitVolume }) {
		t.Error("the Pod has the container or its volumes")
	}
}

func TestSecretOfGitThatTheAgentCouldReadIsRefused(t *testing.T) {
	for title, change := range map[string]func(*v1alpha1.SessionRunnerSpec){
		"in allowedSecrets": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("forge")}
		},
		"in allowedSecrets with its key": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("forge", "API_KEY", "password")}
		},
		"in allowedSecrets with the key of a GitHub App": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("forge", "githubAppPrivateKey")}
		},
		"in volumes": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.SecretVolume("forge"))
		},
		"in env": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "forge"}, Key: "password",
			}}}}
		},
	} {
		s := newGitScenario(t)
		s.Session.Spec.SecretMounts, s.Session.Spec.EnvFrom = nil, nil
		change(&s.Runner.Spec)
		decision := s.decideAndRecord()
		if decision.CreateJob != nil || !strings.Contains(messageOf(decision, v1alpha1.ConditionSpecAccepted), "the agent could read the credentials of git") {
			t.Errorf("%s: %+v", title, decision.Status.Conditions)
		}
	}
}

func TestAgentCanHaveAnotherKeyOfTheSecretOfGit(t *testing.T) {
	s := newGitScenario(t)
	s.Session.Spec.SecretMounts, s.Session.Spec.EnvFrom = nil, nil
	s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("forge", "OTHER")}
	testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "API_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "forge"}, Key: "API_KEY",
	}}}}
	if decision := s.decideAndRecord(); decision.CreateJob == nil {
		t.Errorf("%+v", decision.Status.Conditions)
	}
}

// internal/pod/sessiongit tries many URLs.
func TestASessionOfARepositoryThatIsNotListedDoesNotStart(t *testing.T) {
	const url = "https://git.example/other/secret.git"
	for title, change := range map[string]func(*v1alpha1.AgenticSession){
		"spec.repos[1].url": func(s *v1alpha1.AgenticSession) {
			s.Spec.Repos = append(s.Spec.Repos, v1alpha1.SessionRepo{GitSource: v1alpha1.GitSource{URL: url}})
		},
		"spec.agent.workflow.url": func(s *v1alpha1.AgenticSession) {
			s.Spec.Agent.Workflow = &v1alpha1.SessionWorkflow{GitSource: v1alpha1.GitSource{URL: url}}
		},
	} {
		s := newGitScenario(t)
		change(s.Session)
		decision := s.decideAndRecord()
		got := messageOf(decision, v1alpha1.ConditionSpecAccepted)
		want := title + ": Forbidden: git.repositories of SessionRunner " + s.Runner.Name + " has only git.example/team/* of this host: add git.example/other/secret there"
		if decision.CreateJob != nil || !strings.Contains(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s = newGitScenario(t)
		change(s.Session)
		s.Runner.Spec.Git = &v1alpha1.SessionGit{}
		if decision := s.decideAndRecord(); decision.CreateJob == nil {
			t.Errorf("%s, without credentials: %+v", title, decision.Status.Conditions)
		}
	}
}

func TestNoSidecarHasTheNameOfAContainerThatReports(t *testing.T) {
	for _, name := range []string{v1alpha1.RunnerContainer, checkContainer, GitContainer, ArchiveContainer, ModelContainer} {
		s := newScenario(t)
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar(name, "x")}
		decision := s.decideAndRecord()
		if got := messageOf(decision, v1alpha1.ConditionSpecAccepted); decision.CreateJob != nil || !strings.Contains(got, "another container of the Pod has this name") {
			t.Errorf("%s: accepted: %s", name, got)
		}
	}
}

func messageOf(decision Decision, condition string) string {
	for i := range decision.Status.Conditions {
		if c := &decision.Status.Conditions[i]; c.Type == condition {
			return c.Message
		}
	}
	return ""
}

func TestResultsOfRepositoriesAreParsed(t *testing.T) {
	got, err := ParseResult(`{"repositories": [{"name": "shop", "branch": "session/demo", "commit": "abc", "pushed": true, "pullRequestURL": "https://git.example/1", "new": 1}]}`)
	if err != nil || len(got.Repositories) != 1 || !got.Repositories[0].Pushed || got.Repositories[0].PullRequestURL != "https://git.example/1" {
		t.Errorf("result %+v, error %v", got, err)
	}
	for _, text := range []string{
		`{"repositories": [{"name": "a"}, {"name": "a"}]}`, `{"repositories": [{"name": "a", "pullRequestURL": "javascript:alert(1)"}]}`,
		`{"repositories": {"name": "a"}}`, `{"repositories": [{"name": "a", "commit": "` + strings.Repeat("c", 65) + `"}]}`,
		`{"repositories": [` + strings.Repeat(`{"name": ""},`, 16) + `{"name": "b"}]}`,
	} {
		if got, err := ParseResult(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
