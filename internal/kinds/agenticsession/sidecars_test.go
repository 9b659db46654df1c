package agenticsession

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	check := func(title string, change func(*scenario), container, credentials, source, socket string, variable corev1.EnvVar, args string) {
		t.Run(title, func(t *testing.T) {
			s := newGitScenario(t)
			change(s)
			pod := s.startAttempt().podSpec()
			own := pod.InitContainers[slices.IndexFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == container })]
			mounts := mountsOf(&own)
			require.Equal(t, args, strings.Join(own.Args, " "))
			require.True(t, mounts[credentials].ReadOnly == (credentials != archiveClaimVolume) && !mounts[socket].ReadOnly &&
				own.Image == s.Runner.Spec.Image && *own.RestartPolicy == corev1.ContainerRestartPolicyAlways, "the container is %+v", own)
			checkHardened(t, 0, pod)
			for _, other := range slices.Concat(pod.InitContainers, pod.Containers) {
				if other.Name == container {
					continue
				}
				for name, mount := range mountsOf(&other) {
					_, isShared := mounts[name]
					require.True(t, !isShared || name != credentials && mount.ReadOnly, "container %s mounts %+v", other.Name, mount)
				}
				raw, err := json.Marshal(other)
				require.NoError(t, err)
				require.True(t, !strings.Contains(string(raw), `Ref":{"name":"`+source+`"`), "%s refers to %s: %s", other.Name, source, raw)
			}
			for _, volume := range pod.Volumes {
				isOfModel := volume.Secret != nil && volume.Secret.SecretName == "provider"
				require.True(t, !isOfModel || volume.Name == modelKeyVolume && len(volume.Secret.Items) == 1, "volume %+v", volume)
			}
			runner := &pod.Containers[0]
			require.True(t, mountsOf(runner)[socket].ReadOnly && slices.Contains(runner.Env, variable), "the runner is %+v", runner)
		})
	}
	check("git", func(*scenario) {}, GitContainer, gitCredentialsVolume, "forge", gitVolume, gitVariable,
		"git --directory=/git --credentials=/etc/agentic-git --repositories=git.example/team/* --forge=GitLab --forge-url=https://git.example/api")
	check("an archive in a bucket", setArchive(archiveInBucket), ArchiveContainer, archiveCredentialsVolume, "archive", archiveVolume, archiveVariable,
		"archive --directory=/archive --endpoint=https://s3.example --bucket=transcripts --prefix=team --region=eu-central-1 --credentials=/etc/agentic-archive")
	check("an archive in a claim", setArchive(archiveInClaim), ArchiveContainer, archiveClaimVolume, "transcripts", archiveVolume, archiveVariable,
		"archive --directory=/archive --claim=/transcripts")
	check("a model", func(s *scenario) { setModel(s) }, ModelContainer, modelKeyVolume, "provider", modelVolume, modelVariable, modelArguments)
	check("a model with prices and a limit", func(s *scenario) {
		model := setModel(s).Runner.Spec.Model
		model.Prices, model.BaseURL = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "prices"}}, "https://gateway.example/$(HOME)"
		s.Session.Spec.Limits.MaxCostUSD = new(v1alpha1.Number("5"))
	}, ModelContainer, modelKeyVolume, "provider", modelVolume, modelVariable,
		modelArguments+" --base-url=https://gateway.example/$$(HOME) --prices=/etc/agentic-prices/prices.yaml --limit-usd=5")
}

func TestCredentialsThatTheAgentCouldReadAreRefused(t *testing.T) {
	const anotherKey = "with another key, which is accepted"
	variable := func(spec *v1alpha1.SessionRunnerSpec, secret, key string) {
		testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
		}}}}
	}
	check := func(want string, set func(*scenario), secret string, keys []string) {
		for _, key := range keys {
			for way, change := range map[string]func(spec *v1alpha1.SessionRunnerSpec){
				"in allowed.secrets": func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(secret)}
				},
				"in allowed.secrets with its key": func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(secret, "OTHER", key)}
				},
				"in volumes": func(spec *v1alpha1.SessionRunnerSpec) {
					testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.SecretVolume(secret))
				},
				"in env": func(spec *v1alpha1.SessionRunnerSpec) { variable(spec, secret, key) },
				anotherKey: func(spec *v1alpha1.SessionRunnerSpec) {
					spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(secret, "OTHER")}
					variable(spec, secret, "OTHER")
				},
			} {
				t.Run(secret+" "+key+" "+way, func(t *testing.T) {
					s := newGitScenario(t)
					s.Session.Spec.SecretMounts, s.Session.Spec.EnvFrom = nil, nil
					set(s)
					change(&s.Runner.Spec)
					if way == anotherKey {
						s.startAttempt()
					} else {
						s.wantNotAccepted(want + " in Secret " + secret)
					}
				})
			}
		}
	}
	check("the agent could read the credentials of git", func(*scenario) {}, "forge", []string{"password", "githubAppPrivateKey"})
	check("the agent could read the credentials of the archive", setArchive(archiveInBucket), "archive", []string{"AWS_SECRET_ACCESS_KEY"})
	check("the agent could read the key of the model", func(s *scenario) { setModel(s) }, "provider", []string{"ANTHROPIC_API_KEY"})
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
	hasContainer := slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == GitContainer })
	hasVolume := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == gitCredentialsVolume || v.Name == gitVolume })
	require.True(t, !hasContainer && !hasVolume, "the Pod has the container or its volumes: %+v", pod)
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

func setModel(s *scenario) *scenario {
	s.Runner.Spec.Model = &v1alpha1.SessionModel{Provider: "Anthropic", SecretRef: v1alpha1.LocalReference{Name: "provider"}}
	return s
}

func newModelScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := setModel(newScenario(t, change...))
	s.Runner.Spec.ActivityLease = true
	return s.startModelAttempt()
}

func (s *scenario) startModelAttempt() *scenario {
	s.t.Helper()
	s.startAttempt().Activity = &Activity{CreationTime: s.Now}
	s.setModelState(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Now)}})
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
	return s
}

func (s *scenario) setModelState(state corev1.ContainerState) *scenario {
	s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: ModelContainer, State: state}}
	return s
}

func (s *scenario) endModel(message string) *scenario {
	return s.setModelState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}})
}

func (s *scenario) wantModelArgument(want string) {
	s.t.Helper()
	containers := s.podSpec().InitContainers
	args := containers[len(containers)-1].Args
	require.True(s.t, slices.Contains(args, want), "arguments %v", args)
}

func spentReport(dollars string) string {
	return `{"spentUSD":"` + dollars + `"}` + strings.Repeat(" ", 100)
}

// Whatever the agent reports, the session costs what its proxy reports; without a report, it costs what it could.
func TestTheCostIsWhatTheProxyReports(t *testing.T) {
	terminated := func(message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{Message: message}
	}
	proxies := map[string]struct {
		status corev1.ContainerStatus
		// cost is empty if the proxy left no report.
		cost v1alpha1.Number
	}{
		"reports":                       {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(spentReport("1.25"))}}, "1.25"},
		"reports nothing spent":         {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(spentReport("0"))}}, "0"},
		"reports more than the limit":   {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(spentReport("3.5"))}}, "3.5"},
		"waits for a restart":           {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, LastTerminationState: corev1.ContainerState{Terminated: terminated(spentReport("1.25"))}}, "1.25"},
		"runs, after a restart":         {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: terminated(spentReport("1.25"))}}, ""},
		"left no message":               {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated("")}}, ""},
		"left a message that is cut":    {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(`{"spentUSD":"1.2`)}}, ""},
		"left a negative cost":          {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(spentReport("-1"))}}, ""},
		"left a cost that is no number": {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(spentReport("NaN"))}}, ""},
	}
	agents := map[string]func(*scenario){
		"completes, and claims another cost": func(s *scenario) { s.reportCost("0.01").exitRunner(0, `{"costUSD": 0.01}`) },
		"claims a high cost":                 func(s *scenario) { s.reportCost("900").exitRunner(0, `{"costUSD": 900}`) },
		"fails":                              func(s *scenario) { s.exitRunner(1, "") },
		"has another SessionRunner":          func(s *scenario) { s.Runner.Spec.Model = nil; s.exitRunner(0, "") },
		"is gone with its Job":               func(s *scenario) { s.Jobs = nil; s.DeletedPod = s.newestPod().UID },
	}
	for proxy, p := range proxies {
		for agent, end := range agents {
			for _, limit := range []v1alpha1.Number{"", "3"} {
				t.Run(fmt.Sprintf("the proxy %s, the agent %s, the limit is %q", proxy, agent, limit), func(t *testing.T) {
					s := newModelScenario(t, withRetryLimit(0))
					if limit != "" {
						s.Session.Spec.Limits.MaxCostUSD = &limit
					}
					status := p.status
					status.Name = ModelContainer
					s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{status}
					end(s)
					s.decideAndRecord()
					want := p.cost
					if want == "" && limit != "" {
						want = limit
					}
					if want == "" {
						want = "unknown"
					}
					s.wantTotalCost(want)
					if p.cost == "" {
						s.wantCondition(v1alpha1.ConditionRunnerReporting, metav1.ConditionUnknown, v1alpha1.ReasonCostUnknown)
					}
					reason := s.Session.Status.Attempts[0].Reason
					isOverspent := limit != "" && (want == limit || want == "3.5")
					require.True(t, agent != "fails" || (reason == v1alpha1.ReasonBudgetExceeded) == isOverspent, "the reason is %s after %s dollars", reason, want)
				})
			}
		}
	}
}

func TestTheNextAttemptHasTheRestOfTheBudget(t *testing.T) {
	s := newModelScenario(t, withRetryLimit(5), withMaxCost("3"))
	s.endModel(spentReport("1.25")).exitRunner(1, "").wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
	s.advanceClock(time.Hour).startModelAttempt()
	s.wantModelArgument("--limit-usd=1.75")
	s.endModel(spentReport("1.8")).exitRunner(1, "the budget is spent").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.wantEvent(v1alpha1.EventBudgetExceeded)
	s.wantTotalCost("3.05")
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("4")).startModelAttempt()
	s.wantModelArgument("--limit-usd=0.95")
}

// The budget in a suspended Job does not know what its Pod spent, so the next Pod belongs to another Job.
func TestASuspendedJobWithABudgetIsReplaced(t *testing.T) {
	for title, resumed := range map[string]bool{"while it is suspended": false, "after it was resumed": true} {
		t.Run(title, func(t *testing.T) {
			s := setModel(newQueuedScenario(t, withMaxCost("3")))
			s.admit().setModelState(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
			s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
			s.advanceClock(time.Minute).suspendJob().stopSuspendedPod().endModel(spentReport("1"))
			if resumed {
				s.DeletedPod = s.newestPod().UID
				s.advanceClock(time.Minute).admit()
				s.Pods = s.Pods[:1] // the cache does not have the new one
			}
			decision := s.decideAndRecord()
			require.True(t, len(decision.DeleteJobs) == 1 && s.Session.Status.Attempts[0].Outcome == v1alpha1.RunRetried, "%+v", s.Session.Status)
			s.wantTotalCost("1")
			s.Jobs, s.Pods = nil, nil
			s.advanceClock(time.Minute).startAttempt()
			s.wantModelArgument("--limit-usd=2")
		})
	}
}

// A limit of the cost that nothing holds is refused, as is a login with which the agent avoids the proxy.
func TestALimitOfTheCostThatWouldNotHoldIsRefused(t *testing.T) {
	variable := func(name string) func(*scenario) {
		return func(s *scenario) {
			testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: name, Value: "x"}}
		}
	}
	fromSecret := func(keys ...string) func(*scenario) {
		return func(s *scenario) {
			s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("logins", keys...)}
			s.Session.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "logins"}}}}
		}
	}
	logins := map[string]func(*scenario){
		"no login": func(*scenario) {}, "another variable": variable("LOG_LEVEL"), "an address": variable("ANTHROPIC_BASE_URL"),
		"a subscription": variable("CLAUDE_CODE_OAUTH_TOKEN"),
		"Bedrock":        variable("CLAUDE_CODE_USE_BEDROCK"),
		"Vertex":         variable("GOOGLE_GENAI_USE_VERTEXAI"),
		"a key":          variable("CODEX_API_KEY"),
		"a key of the session": func(s *scenario) {
			s.Session.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"OPENAI_API_KEY": "x"}
		},
		"a key of a Secret":     fromSecret("GEMINI_API_KEY"),
		"other keys of Secrets": fromSecret("PASSWORD"),
	}
	for login, set := range logins {
		isLogin := !slices.Contains([]string{"no login", "another variable", "other keys of Secrets", "an address"}, login)
		for _, limit := range []string{"no limit", "of the session", "of the SessionRunner"} {
			for _, isMetered := range []bool{false, true} {
				s := newScenario(t)
				set(s)
				switch limit {
				case "of the session":
					s.Session.Spec.Limits.MaxCostUSD = new(v1alpha1.Number("1"))
				case "of the SessionRunner":
					s.Runner.Spec.Limits.MaxCostUSD = new(v1alpha1.Number("1"))
				}
				if isMetered {
					setModel(s)
				}
				decision := s.decideAndRecord()
				refused := isLogin && (isMetered || limit != "no limit") || login == "an address" && isMetered
				message := s.findCondition(v1alpha1.ConditionSpecAccepted).Message
				require.True(t, (decision.CreateJob == nil) == refused && (!refused || strings.Contains(message, "model")),
					"%s, %s, with the proxy: %v: %s", login, limit, isMetered, message)
			}
		}
	}
}
