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
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func setModel(s *scenario) *scenario {
	s.Runner.Spec.Model = &v1alpha1.SessionModel{Provider: "Anthropic", SecretRef: v1alpha1.LocalReference{Name: "provider"}}
	return s
}

// newModelScenario returns a session that runs, whose agent calls its model through the proxy.
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

// endModel ends the proxy with a message.
func (s *scenario) endModel(message string) *scenario {
	return s.setModelState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}})
}

func spentReport(dollars string) string {
	return `{"spentUSD":"` + dollars + `"}` + strings.Repeat(" ", 100)
}

// The agent's container has the key in no variable and in no volume, and can write nothing that the proxy reads.
func TestOnlyTheProxyOfTheModelHasTheKey(t *testing.T) {
	for title, change := range map[string]func(*scenario){
		"with nothing else": func(*scenario) {},
		"with git, an archive and sidecars": func(s *scenario) {
			s.Runner.Spec.Git, s.Runner.Spec.Archive = newGitScenario(t).Runner.Spec.Git, s3Archive()
			s.Session.Spec.Repos = newGitScenario(t).Session.Spec.Repos
			testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.SidecarWithWorkspace("tools", "tools:1")}
		},
		"with prices and a limit": func(s *scenario) {
			s.Runner.Spec.Model.Prices, s.Runner.Spec.Model.BaseURL = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "prices"}}, "https://gateway.example/$(HOME)"
			s.Session.Spec.Limits.MaxCostUSD = new(v1alpha1.Number("5"))
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := setModel(newScenario(t))
			change(s)
			decision := s.decideAndRecord()
			if decision.CreateJob == nil {
				t.Fatalf("%+v", decision.Status.Conditions)
			}
			pod := decision.CreateJob.Spec.Template.Spec
			writes := map[string]string{} // the only container that writes a volume of the proxy
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				raw, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				mounts := mountsOf(&c)
				isModel := c.Name == ModelContainer
				if _, found := mounts[modelKeyVolume]; found != isModel {
					t.Errorf("container %s mounts the key: %v", c.Name, found)
				}
				if !isModel && strings.Contains(string(raw), `"name":"provider"`) {
					t.Errorf("container %s refers to the Secret: %s", c.Name, raw)
				}
				for name, mount := range mounts {
					if !mount.ReadOnly && writes[name] == "" {
						writes[name] = c.Name
					} else if !mount.ReadOnly && (writes[name] == ModelContainer || isModel) {
						t.Errorf("%s and %s write the volume %s", writes[name], c.Name, name)
					}
				}
				if isModel {
					want := "model --provider=Anthropic --directory=/model --keys=/etc/agentic-model --ledger=/tmp --message=/dev/termination-log"
					if title == "with prices and a limit" {
						want += " --base-url=https://gateway.example/$$(HOME) --prices=/etc/agentic-prices/prices.yaml --limit-usd=5"
					}
					if got := strings.Join(c.Args, " "); got != want {
						t.Errorf("arguments %s", got)
					}
				}
			}
			for _, volume := range pod.Volumes {
				if volume.Secret != nil && volume.Secret.SecretName == "provider" && (volume.Name != modelKeyVolume || len(volume.Secret.Items) != 1) {
					t.Errorf("volume %+v", volume)
				}
			}
			if c := &pod.Containers[0]; !mountsOf(c)[modelVolume].ReadOnly || !slices.Contains(c.Env, corev1.EnvVar{Name: "AGENTIC_MODEL_PROVIDER", Value: "Anthropic"}) {
				t.Errorf("the runner is %+v", c)
			}
		})
	}
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
					if overspent := limit != "" && (want == limit || want == "3.5"); agent == "fails" && (reason == v1alpha1.ReasonBudgetExceeded) != overspent {
						t.Errorf("the reason is %s after %s dollars", reason, want)
					}
				})
			}
		}
	}
}

func TestTheNextAttemptHasTheRestOfTheBudget(t *testing.T) {
	s := newModelScenario(t, withRetryLimit(5), withMaxCost("3"))
	s.endModel(spentReport("1.25")).exitRunner(1, "").wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRetrying)
	s.advanceClock(time.Hour).startModelAttempt()
	args := func() []string {
		containers := s.newestJob().Spec.Template.Spec.InitContainers
		return containers[len(containers)-1].Args
	}
	if !slices.Contains(args(), "--limit-usd=1.75") {
		t.Errorf("arguments %v", args())
	}
	s.endModel(spentReport("1.8")).exitRunner(1, "the budget is spent").wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonBudgetExceeded)
	s.wantEvent(v1alpha1.EventBudgetExceeded)
	s.wantTotalCost("3.05")
	s.updateSpec(requestNextRun).updateSpec(withMaxCost("4")).startModelAttempt()
	if !slices.Contains(args(), "--limit-usd=0.95") {
		t.Errorf("arguments %v", args())
	}
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
			if len(decision.DeleteJobs) != 1 || s.Session.Status.Attempts[0].Outcome != v1alpha1.RunRetried {
				t.Fatalf("%+v", s.Session.Status.Attempts)
			}
			s.wantTotalCost("1")
			s.Jobs, s.Pods = nil, nil
			s.advanceClock(time.Minute).startAttempt()
			containers := s.newestJob().Spec.Template.Spec.InitContainers
			if args := containers[len(containers)-1].Args; !slices.Contains(args, "--limit-usd=2") {
				t.Errorf("arguments %v", args)
			}
		})
	}
}

// A limit of the cost that nothing holds is refused, as is a login with which the agent avoids the proxy.
func TestALimitOfTheCostThatWouldNotHoldIsRefused(t *testing.T) {
	const provider, model = "provider", "model"
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
	isLogin := func(login string) bool {
		return !slices.Contains([]string{"no login", "another variable", "other keys of Secrets", "an address"}, login)
	}
	for login, set := range logins {
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
				refused := isLogin(login) && (isMetered || limit != "no limit") || login == "an address" && isMetered
				if message := messageOf(decision, v1alpha1.ConditionSpecAccepted); (decision.CreateJob == nil) != refused || refused && !strings.Contains(message, "model") {
					t.Errorf("%s, %s, with the proxy: %v: %s", login, limit, isMetered, message)
				}
			}
		}
	}
	for title, change := range map[string]func(*v1alpha1.SessionRunnerSpec){
		"a provider that does not exist": func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.Provider = "Bedrock" },
		"a URL with a login":             func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.BaseURL = "https://a:b@example.com" },
		"a URL without a host":           func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.BaseURL = "/v1" },
		"the port of the proxy":          func(spec *v1alpha1.SessionRunnerSpec) { spec.Network.Port = 9471 },
		"a sidecar with its name": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{testbuilder.Sidecar(model, "x")}
		},
		"the Secret in allowed.secrets": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(provider)}
		},
		"the key in allowed.secrets": func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(provider, "ANTHROPIC_API_KEY")}
		},
		"the Secret in volumes": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", "/srv/a", testbuilder.SecretVolume(provider))
		},
		"the directory of the token": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.MountVolume(spec, "a", modelPath, testbuilder.SecretVolume("other"))
		},
		"the key in a variable": func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: provider}, Key: "ANTHROPIC_API_KEY",
			}}}}
		},
	} {
		s := setModel(newScenario(t))
		change(&s.Runner.Spec)
		if decision := s.decideAndRecord(); decision.CreateJob != nil {
			t.Errorf("%s is accepted", title)
		}
	}
}
