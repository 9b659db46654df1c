package agenticsession

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// newProxyScenario returns a session whose SessionRunner allows one host, and whose egress proxy is ready.
func newProxyScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	text, err := adminauth.NewPrivateKey()
	require.NoError(t, err)
	s.Keys, err = adminauth.ParsePrivateKey(text)
	require.NoError(t, err)
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	s.Runner.Generation = 2
	s.setProxy(decision.True(v1alpha1.ReasonEgressProxyReady, ""), "10.96.0.9:3128")
	return s
}

func (s *scenario) setProxy(state decision.State, address string) {
	s.Runner.Status = v1alpha1.SessionRunnerStatus{EgressProxyAddress: address}
	decision.SetState(&s.Runner.Status.Conditions, s.Runner.Generation, metav1.NewTime(s.Now), v1alpha1.ConditionEgressProxyReady, state)
}

func TestSessionWaitsUntilTheProxyServesItsHosts(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"no proxy": func(s *scenario) { s.Runner.Status = v1alpha1.SessionRunnerStatus{} },
		"it starts": func(s *scenario) {
			s.setProxy(decision.False(v1alpha1.ReasonEgressProxyStarting, "0 of 2"), "10.96.0.9:3128")
		},
		"it has other hosts":      func(s *scenario) { s.Runner.Generation++ },
		"it has no address":       func(s *scenario) { s.setProxy(decision.True(v1alpha1.ReasonEgressProxyReady, ""), "") },
		"the operator has no key": func(s *scenario) { s.Keys = nil },
	} {
		t.Run(title, func(t *testing.T) {
			s := newProxyScenario(t)
			runner, keys := s.Runner.DeepCopy(), s.Keys
			change(s)
			d := s.decideAndRecord()
			c := s.findCondition(v1alpha1.ConditionBlocked)
			require.True(t, d.CreateJob == nil && c.Reason == v1alpha1.ReasonEgressProxyNotReady && c.Message != "", "%+v", c)
			s.Runner, s.Keys = runner, keys
			s.startAttempt()
		})
	}
}

func TestSessionThatMayOnlyReachHostsReachesOnlyTheProxyAndNoDNS(t *testing.T) {
	hosts := []v1alpha1.EgressHost{"api.example.com", "*.example.org:8443"}
	other := v1alpha1.SessionEgress{To: testbuilder.Block("10.0.0.0/8"), Ports: testbuilder.Ports(443)}
	for title, test := range map[string]struct {
		egress    []v1alpha1.SessionEgress
		dns       bool
		ruleCount int
	}{
		"hosts only":           {[]v1alpha1.SessionEgress{{Hosts: hosts}}, false, 1},
		"hosts and a network":  {[]v1alpha1.SessionEgress{{Hosts: hosts}, other}, true, 3},
		"a network only":       {[]v1alpha1.SessionEgress{other}, true, 2},
		"nothing":              {nil, true, 1},
		"two rules with hosts": {[]v1alpha1.SessionEgress{{Hosts: hosts}, {Hosts: hosts}}, false, 2},
	} {
		t.Run(title, func(t *testing.T) {
			s := newProxyScenario(t)
			s.Runner.Spec.Network.Egress = test.egress
			policy := newSessionNetworkPolicy(s.Session, s.Runner, &s.Network, &s.NetworkCheck)
			hasDNS := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return rule.Ports[0].Port.IntVal == 53 })
			require.True(t, hasDNS == test.dns && len(policy.Spec.Egress) == test.ruleCount, "DNS %t, %+v", hasDNS, policy.Spec.Egress)
			env, usesProxy := s.startAttempt().podSpec().Containers[0].Env, strings.Contains(title, "hosts")
			hasVariables := slices.ContainsFunc(env, func(v corev1.EnvVar) bool { return slices.Contains(proxyVariables, v.Name) })
			hasToken := s.Session.Status.Attempt.EgressTokenExpires != nil
			require.True(t, hasVariables == usesProxy && hasToken == usesProxy, "it has a token: %t, and variables: %t", hasToken, hasVariables)
			if !test.dns {
				rule := policy.Spec.Egress[0]
				isProxy := rule.To[0].NamespaceSelector == nil && rule.To[0].PodSelector.MatchLabels[workload.Label] != ""
				require.True(t, isProxy && len(rule.To) == 1 && len(rule.Ports) == 1 && rule.Ports[0].Port.IntVal == workload.Port, "%+v", rule)
			}
		})
	}
	proxy := &workload.Proxy{Namespace: "ns", Network: &NetworkSettings{}}
	np, _ := proxy.Dependents(proxy.Deployment())[0].(*networkingv1.NetworkPolicy)
	require.True(t, np.Spec.Ingress[0].From[0].PodSelector.MatchExpressions[0].Key == LabelSessionUID && SelectedSessions(np) == "",
		"the proxy admits Pods with %+v", np.Spec.Ingress[0].From)
}

func TestPolicyThatAllowsAHostOnlySessionMoreThanTheProxyIsFound(t *testing.T) {
	s := newProxyScenario(t)
	toProxy := networkingv1.NetworkPolicyPeer{PodSelector: workload.Selector()}
	for title, test := range map[string]struct {
		spec networkingv1.NetworkPolicySpec
		want bool
	}{
		"the proxy":              {egressTo(testbuilder.PortRange(workload.Port, workload.Port), toProxy), false},
		"its metrics":            {egressTo(testbuilder.PortRange(9464, 9464), toProxy), true},
		"proxies everywhere":     {egressTo(testbuilder.PortRange(workload.Port, workload.Port), networkingv1.NetworkPolicyPeer{PodSelector: workload.Selector(), NamespaceSelector: &metav1.LabelSelector{}}), true},
		"DNS":                    {networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{s.Network.AllowDNS()}}, true},
		"the address of a proxy": {egressTo(testbuilder.PortRange(workload.Port, workload.Port), blockPeer("10.96.0.9/32")), true},
	} {
		t.Run(title, func(t *testing.T) {
			policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: test.spec}
			wanted := newSessionNetworkPolicy(s.Session, s.Runner, &s.Network, &s.NetworkCheck)
			require.Equal(t, test.want, findWideningPolicy([]networkingv1.NetworkPolicy{policy}, podLabels(s.Session, s.Runner), wanted) != nil)
		})
	}
}

func TestTokenOfASessionInAQueueOutlastsItsWait(t *testing.T) {
	s := newProxyScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(3600) })
	s.Runner.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{queueLabel: "team-a"}}
	s.startAttempt()
	expires := s.Session.Status.Attempt.EgressTokenExpires
	require.True(t, expires.Sub(s.Now) >= 300*24*time.Hour, "the token expires at %s", expires)
}

func TestSessionGetsTheProxyWithItsOwnTokenOnlyInASecret(t *testing.T) {
	s := newProxyScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(3600) })
	testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("gateway", "x")}
	decision := s.decideAndRecord()
	var inputs *corev1.Secret
	for _, object := range decision.ApplyObjects {
		if secret, ok := object.(*corev1.Secret); ok {
			inputs = secret
		}
	}
	url := string(inputs.Data[proxyURLKey])
	token, _, _ := strings.Cut(strings.TrimPrefix(url, "http://fix:"), "@")
	public := adminauth.ParsePublicKeys([]byte(s.Keys.PublicKey()))
	end := s.Now.Add(time.Hour)
	session, expires, err := adminauth.VerifySession(token, public, "ns", end)
	want := adminauth.Session{Namespace: "ns", Name: "fix", UID: "session", Runner: "default"}
	require.True(t, err == nil && session == want && strings.HasSuffix(url, "@10.96.0.9:3128"), "%s: %+v, %v", url, session, err)
	require.True(t, !expires.Before(end) && !expires.After(end.Add(proxyTokenMargin)),
		"the token expires at %s, and the session ends at %s", expires, end)
	pod := decision.CreateJob.Spec.Template.Spec
	for _, c := range []corev1.Container{pod.Containers[0], pod.InitContainers[0]} {
		values := map[string]string{}
		for _, variable := range c.Env {
			values[variable.Name] = variable.Value
			if slices.Contains(proxyURLVariables, variable.Name) {
				key := variable.ValueFrom.SecretKeyRef
				require.True(t, variable.Value == "" && key.Name == inputs.Name && key.Key == proxyURLKey, "%s: %+v", c.Name, variable)
			}
		}
		for name, want := range map[string]string{"HTTPS_PROXY": "", "https_proxy": "", "NODE_USE_ENV_PROXY": "1", "NO_PROXY": "localhost,127.0.0.1,::1,$(KUBERNETES_SERVICE_HOST)"} {
			value, found := values[name]
			require.True(t, found && value == want, "%s: %s=%q, %t", c.Name, name, value, found)
		}
	}
	raw, err := pod.Marshal()
	require.True(t, err == nil && !strings.Contains(string(raw), token), "the Pod's spec contains the token: %v", err)
	// Deciding again a minute later, before the Job exists, changes nothing.
	again := s.advanceClock(time.Minute).decideAndRecord()
	require.True(t, again.Status.Attempt.InputsRef.Name == inputs.Name && again.DeleteSecret == "", "other inputs: %+v", again.Status.Attempt)
}

func TestWhatTheProxyCannotReachIsRejected(t *testing.T) {
	repo := func(url v1alpha1.GitURL) func(spec *v1alpha1.AgenticSessionSpec) {
		return func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: url}}}
		}
	}
	for title, test := range map[string]struct {
		spec   func(spec *v1alpha1.AgenticSessionSpec)
		runner func(spec *v1alpha1.SessionRunnerSpec)
		want   string
	}{
		"an HTTPS repository": {spec: repo("https://github.com/a/b")},
		"an SSH repository":   {spec: repo("ssh://git@github.com/a/b"), want: "spec.repos[0].url: Forbidden: SessionRunner default allows only TLS connections to hosts, and not SSH"},
		"an scp repository":   {spec: repo("git@github.com:a/b"), want: "spec.repos[0].url: Forbidden"},
		"an SSH repository, and another rule": {spec: repo("git@github.com:a/b"), runner: func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Network.Egress = append(spec.Network.Egress, v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: testbuilder.Ports(22)})
		}},
		"an SSH workflow": {spec: func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Agent.Workflow = &v1alpha1.SessionWorkflow{GitSource: v1alpha1.GitSource{URL: "git@github.com:a/b"}}
		}, want: "spec.agent.workflow.url: Forbidden"},
		"another proxy of the session": {spec: func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"https_proxy": "http://evil"}
		}, want: "spec.environmentVariables[https_proxy]: Forbidden"},
		"another proxy of the runner": {runner: func(spec *v1alpha1.SessionRunnerSpec) {
			testbuilder.RunnerContainer(spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://evil"}}
		}, want: "HTTPS_PROXY is set by the operator"},
		"an address as a host": {runner: func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Network.Egress[0].Hosts = []v1alpha1.EgressHost{"10.0.0.1"}
		}, want: `spec.network.egress[0].hosts[0]: Invalid value: "10.0.0.1"`},
	} {
		t.Run(title, func(t *testing.T) {
			s := newProxyScenario(t)
			if test.spec != nil {
				test.spec(&s.Session.Spec)
			}
			if test.runner != nil {
				test.runner(&s.Runner.Spec)
			}
			if test.want == "" {
				s.startAttempt()
			} else {
				s.wantNotAccepted(test.want)
			}
		})
	}
}
