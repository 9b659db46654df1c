package agenticsession

import (
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
	terminated := func(message string) *corev1.ContainerStateTerminated { return &corev1.ContainerStateTerminated{Message: message} }
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
			require.True(t, len(decision.DeleteJobs) == 1 && s.Session.Status.Attempts[0].Outcome == v1alpha1.RunRetried,
				"%+v", s.Session.Status.Attempts)
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
		return func(s *scenario) { testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: name, Value: "x"}} }
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
				message := s.findCondition(v1alpha1.ConditionSpecAccepted).Message
				require.True(t, (decision.CreateJob == nil) == refused && (!refused || strings.Contains(message, "model")),
					"%s, %s, with the proxy: %v: %s", login, limit, isMetered, message)
			}
		}
	}
	for want, change := range map[string]func(*v1alpha1.SessionRunnerSpec){
		`spec.model.provider: Unsupported value: "Bedrock"`:                   func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.Provider = "Bedrock" },
		`spec.model.baseURL: Invalid value: "https://a:b@example.com"`:        func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.BaseURL = "https://a:b@example.com" },
		`spec.model.baseURL: Invalid value: "/v1"`:                            func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.BaseURL = "/v1" },
		`spec.model.baseURL: Invalid value: "ftp://model.example"`:            func(spec *v1alpha1.SessionRunnerSpec) { spec.Model.BaseURL = "ftp://model.example" },
		"spec.network.port: Invalid value: 9471: it is the port of the proxy": func(spec *v1alpha1.SessionRunnerSpec) { spec.Network.Port = 9471 },
		"overlaps with " + modelPath: func(spec *v1alpha1.SessionRunnerSpec) { // the directory of the token
			testbuilder.MountVolume(spec, "a", modelPath, testbuilder.SecretVolume("other"))
		},
	} {
		s := setModel(newScenario(t))
		change(&s.Runner.Spec)
		s.wantNotAccepted(want)
	}
}
