package agenticsession

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func blockPeer(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return *testbuilder.Block(cidr, except...)
}

func egressTo(ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}}
}

func parseSelector(t *testing.T, text string) metav1.LabelSelector {
	t.Helper()
	selector, err := metav1.ParseToLabelSelector(text)
	require.NoError(t, err)
	return *selector
}

func TestPolicyThatAllowsMoreThanTheSessionRunnerIsFound(t *testing.T) {
	visitor := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ui"}}}
	allEgressOf := func(selector string) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: parseSelector(t, selector), Egress: []networkingv1.NetworkPolicyEgressRule{{}}}
	}
	check := func(title string, other networkingv1.NetworkPolicySpec, want bool) {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, setInteractive)
			testbuilder.RunnerPod(&s.Runner.Spec)
			s.Runner.Spec.Template.Labels = map[string]string{"team": "a"}
			s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16"), Ports: testbuilder.Ports(443)}}
			s.Runner.Spec.Network.IngressFrom = []networkingv1.NetworkPolicyPeer{visitor}
			decision := s.decideAndRecord()
			s.createPlannedJob(decision)
			s.createNetworkPolicies(decision)
			s.NetworkPolicies = append(s.NetworkPolicies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "ns"}, Spec: other})
			s.decideAndRecord()
			if want {
				s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
			} else {
				s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
			}
		})
	}
	check("no rules", networkingv1.NetworkPolicySpec{}, false)
	check("all egress", allEgressOf(""), true)
	check("all ingress", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}, true)
	check("the same egress", egressTo(testbuilder.PortRange(443, 443), blockPeer("10.0.0.0/8", "10.1.0.0/16")), false)
	check("a part of the egress", egressTo(testbuilder.PortRange(443, 443), blockPeer("10.2.0.0/16")), false)
	check("a network with a larger exception", egressTo(testbuilder.PortRange(443, 443), blockPeer("10.0.0.0/8", "10.0.0.0/12")), false)
	check("a named port", egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("https"))}}, blockPeer("10.2.0.0/16")), true)
	check("UDP", egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(443)), Protocol: new(corev1.ProtocolUDP)}}, blockPeer("10.2.0.0/16")), true)
	check("one allowed and one other network", egressTo(testbuilder.PortRange(443, 443), blockPeer("10.2.0.0/16"), blockPeer("192.168.0.0/16")), true)
	check("Pods", egressTo(testbuilder.PortRange(443, 443), visitor), true)
	check("the visitors that may connect", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{visitor}, Ports: testbuilder.PortRange(8080, 8080)}}}, false)
	check("visitors from all namespaces", networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, Ports: testbuilder.PortRange(8080, 8080)}}}, true)
	check("all egress of other Pods", allEgressOf("app=web"), false)
	check("all egress of Pods with a label of the SessionRunner", allEgressOf("team=a"), true)
	check("all egress of Pods without a session", allEgressOf("!"+LabelSessionUID), false)
	check("all egress of Pods without the label app", allEgressOf("!app"), true)
	check("all egress of this session", allEgressOf(LabelSessionUID+"=session"), true)
	check("all egress of another session", allEgressOf(LabelSessionUID+"=other"), false)
	check("all egress of what the operator manages", allEgressOf(v1alpha1.LabelManagedBy+"="+v1alpha1.ManagedByValue), true)
}

func TestSessionStartsInAWidenedNetworkOnlyIfItsSessionRunnerAcceptsThat(t *testing.T) {
	open := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "open"}, Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}}}
	s := newScenario(t)
	s.NetworkPolicies = []networkingv1.NetworkPolicy{open}
	require.True(t, s.decideAndRecord().CreateJob == nil, "the session starts although its network is open")
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
	s.Runner.Spec.Network.Isolation = v1alpha1.NetworkIsolationPreferred
	s.startAttempt()
}

func TestSelectedSessions(t *testing.T) {
	for selector, want := range map[string]string{
		"": AllSessions, "app": AllSessions, "app=a": AllSessions, "!app": AllSessions, LabelSessionUID: AllSessions,
		LabelSessionUID + "=1": "1", LabelSessionUID + "=1,app=a": "1", LabelSessionUID + "=1,app notin (b)": "1",
		"yardmaster.dev/workerpool": "", "yardmaster.dev/workerpool=a": "",
	} {
		got := SelectedSessions(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: parseSelector(t, selector)}})
		require.True(t, got == want, "%s: %q, want %q", selector, got, want)
	}
}

// Whatever a policy allows is allowed by the wanted one, too, unless the policy is found. This compares single
// addresses and ports instead of networks and ranges.
func TestNoPolicyThatAllowsMoreIsMissed(t *testing.T) {
	const policies = 5000
	found := 0
	for seed := range uint64(policies) {
		r := rand.New(rand.NewPCG(seed, 0))
		wanted, other := randomEgress(r), randomEgress(r)
		other.Name = "other"
		if findWideningPolicy([]networkingv1.NetworkPolicy{*other}, nil, wanted) != nil {
			found++
			continue
		}
		for address := range 16 {
			for port := range int32(8) {
				require.True(t, !allowsConnection(other, address, port) || allowsConnection(wanted, address, port),
					"seed %d: %+v allows 10.0.0.%d:%d, which %+v does not", seed, other.Spec.Egress, address, port, wanted.Spec.Egress)
			}
		}
	}
	require.True(t, found != 0 && found != policies, "%d of %d policies were found", found, policies)
}

// randomEgress returns a policy for a few of the addresses from 10.0.0.0 to 10.0.0.15 and of the ports below 8.
func randomEgress(r *rand.Rand) *networkingv1.NetworkPolicy {
	network := func(bits int) string {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))}), bits).Masked().String()
	}
	policy := &networkingv1.NetworkPolicy{}
	for range 1 + r.IntN(2) {
		bits := 28 + r.IntN(4)
		var except []string
		for range r.IntN(3) {
			except = append(except, network(bits+1))
		}
		rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{blockPeer(network(bits), except...)}}
		if r.IntN(4) > 0 {
			first := int32(r.IntN(8))
			rule.Ports = testbuilder.PortRange(first, first+int32(r.IntN(3)))
		}
		policy.Spec.Egress = append(policy.Spec.Egress, rule)
	}
	return policy
}

func allowsConnection(policy *networkingv1.NetworkPolicy, address int, port int32) bool {
	ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(address)})
	contains := func(network string) bool { return netip.MustParsePrefix(network).Contains(ip) }
	return slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		block := rule.To[0].IPBlock
		return contains(block.CIDR) && !slices.ContainsFunc(block.Except, contains) && (len(rule.Ports) == 0 ||
			slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return port >= p.Port.IntVal && port <= *p.EndPort }))
	})
}

const deniedPort = networkcheck.DeniedPort

var testCheck = NetworkCheck{Image: "operator:1", Namespace: "operator", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}}

func newCheckedScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	s.NetworkCheck = testCheck
	return s
}

func (s *scenario) startChecked() *scenario {
	s.t.Helper()
	decision := s.decideAndRecord()
	s.createPlannedJob(decision)
	s.createNetworkPolicies(decision)
	s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: checkContainer}}
	return s
}

// endCheck ends the network check of the newest Pod. With an exit code other than 0, the Pod and its Job fail.
func (s *scenario) endCheck(result networkcheck.Result, exitCode int32) *scenario {
	s.t.Helper()
	pod := s.newestPod()
	pod.Status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: result.String()}
	if exitCode != 0 {
		s.endJob("Failed", "BackoffLimitExceeded")
	}
	return s
}

func TestAgentStartsOnlyAfterTheCheckOfItsNetwork(t *testing.T) {
	addresses := []string{"--address=10.0.0.5", "--address=fd00::5"}
	check := func(isolation v1alpha1.NetworkIsolation, timeout *v1alpha1.Duration, wantTimeout string, wantReportOnly ...string) {
		s := newCheckedScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = timeout })
		s.Runner.Spec.Network.Isolation = isolation
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
		containers := s.startChecked().podSpec().InitContainers
		require.True(t, len(containers) == 2 && containers[0].Name == checkContainer && containers[0].RestartPolicy == nil, "%+v", containers)
		want := slices.Concat([]string{"network-check", "--result-file=/dev/termination-log", "--timeout=" + wantTimeout}, addresses, wantReportOnly)
		require.Equal(t, want, containers[0].Args)
		require.True(t, containers[0].Image == "operator:1" && len(containers[0].VolumeMounts) == 0, "the check is %+v", containers[0])
	}
	check(v1alpha1.NetworkIsolationRequired, nil, "10m0s")
	check(v1alpha1.NetworkIsolationRequired, seconds(0), "168h0m0s")
	check(v1alpha1.NetworkIsolationRequired, seconds(90), "1m30s")
	check(v1alpha1.NetworkIsolationPreferred, nil, "1m0s", "--report-only=true")
	check(v1alpha1.NetworkIsolationPreferred, seconds(0), "1m0s", "--report-only=true")
	check(v1alpha1.NetworkIsolationPreferred, seconds(30), "30s", "--report-only=true")
}

// A check that does not succeed fails the session, which is not retried, unless its SessionRunner accepts that.
func TestTheResultOfTheNetworkCheckIsReported(t *testing.T) {
	const failed, creating, running = v1alpha1.SessionFailed, v1alpha1.SessionCreating, v1alpha1.SessionRunning
	const isTrue, isFalse, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	check := func(title string, end func(*scenario), wantStatus metav1.ConditionStatus, wantReason string, wantPhase v1alpha1.SessionPhase) {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t, withRetryLimit(3)).startChecked()
			end(s)
			s.reconcile().wantCondition(v1alpha1.ConditionNetworkRestricted, wantStatus, wantReason)
			status := &s.Session.Status
			require.True(t, status.Phase == wantPhase && (status.Phase != failed || status.Attempts[0].Reason == wantReason), "%+v", status)
			message := s.findCondition(v1alpha1.ConditionNetworkRestricted).Message
			require.True(t, message != "" && strings.Contains(message, "exit code 137") == (title == "killed"), "message %q", message)
			isUnreachable := wantReason == v1alpha1.ReasonNetworkEnforcementUnknown && title != "killed"
			require.True(t, strings.Contains(message, "could not reach port 9446 of the operator") == isUnreachable, "message %q", message)
		})
	}
	check("the check has not ended", func(*scenario) {}, unknown, v1alpha1.ReasonNetworkCheckPending, creating)
	check("enforced", func(s *scenario) { s.endCheck(networkcheck.Enforced, 0) }, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, creating)
	check("not enforced", func(s *scenario) {
		s.endCheck(networkcheck.NotEnforced, networkcheck.ExitNotEnforced)
	}, isFalse, v1alpha1.ReasonNetworkNotEnforced, failed)
	check("not enforced, accepted", func(s *scenario) { s.endCheck(networkcheck.NotEnforced, 0) }, isFalse, v1alpha1.ReasonNetworkNotEnforced, creating)
	check("unknown", func(s *scenario) {
		s.endCheck(networkcheck.Unknown, networkcheck.ExitUnknown)
	}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed)
	check("unknown at startupTimeout, before the Job ends", func(s *scenario) {
		s.blockPodStartup().endCheck(networkcheck.Unknown, 0)
		s.advanceClock(defaultStartupTimeout).reconcile().endCheck(networkcheck.Unknown, networkcheck.ExitUnknown)
	}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed)
	check("unknown, accepted", func(s *scenario) { s.endCheck(networkcheck.Unknown, 0) }, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, creating)
	check("killed", func(s *scenario) { s.endCheck(networkcheck.Unknown, 137) }, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed)
	checkDeleted := func(title string, change func(*scenario), wantStatus metav1.ConditionStatus, wantReason string, wantPhase v1alpha1.SessionPhase) {
		check(title+", Pod deleted", func(s *scenario) {
			change(s)
			s.reconcile().Pods = nil
		}, wantStatus, wantReason, wantPhase)
	}
	checkDeleted("the check has not ended", func(*scenario) {}, unknown, v1alpha1.ReasonNetworkCheckPending, creating)
	checkDeleted("enforced", func(s *scenario) { s.endCheck(networkcheck.Enforced, 0).startRunner() }, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, running)
	checkDeleted("not enforced, accepted", func(s *scenario) {
		s.endCheck(networkcheck.NotEnforced, 0).startRunner()
	}, isFalse, v1alpha1.ReasonNetworkNotEnforced, running)
	checkDeleted("unknown, accepted", func(s *scenario) {
		s.endCheck(networkcheck.Unknown, 0).startRunner()
	}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, running)
	checkDeleted("unknown", func(s *scenario) {
		s.endCheck(networkcheck.Unknown, networkcheck.ExitUnknown)
	}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed)
}

// Unless its SessionRunner accepts a network that is not enforced.
func TestSessionWaitsWhileTheAddressOfTheOperatorIsUnknown(t *testing.T) {
	s := newCheckedScenario(t)
	s.NetworkCheck.Addresses = nil
	decision := s.decideAndRecord()
	require.True(t, decision.CreateJob == nil && decision.RequeueAfter <= addressInterval && decision.RequeueAfter > 0, "%+v", decision)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNetworkEnforcementUnknown)
	s.Runner.Spec.Network.Isolation = v1alpha1.NetworkIsolationPreferred
	s.startAttempt()
}

func TestNetworkIsCheckedUnlessTheSessionRunnerMayAllowWhatMustFail(t *testing.T) {
	peer := func(p networkingv1.NetworkPolicyPeer) v1alpha1.SessionEgress { return v1alpha1.SessionEgress{To: &p} }
	operator := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "yardmaster"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "git"}}
	check := func(title string, egress []v1alpha1.SessionEgress, want bool) {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t)
			for i := range egress {
				if egress[i].Ports == nil {
					egress[i].Ports = testbuilder.PortRange(1, 65535)
				}
			}
			s.Runner.Spec.Network.Egress = egress
			s.startChecked()
			hasCheck := slices.ContainsFunc(s.newestJob().Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == checkContainer })
			own := findNetworkPolicy(s.NetworkPolicies, NetworkPolicyName(s.Session.Name))
			allowsControl := slices.ContainsFunc(own.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return len(rule.Ports) == 1 && rule.Ports[0].Port.IntVal == networkcheck.ControlPort
			})
			require.True(t, hasCheck == want && allowsControl == want, "check: %t, control port: %t, want %t", hasCheck, allowsControl, want)
		})
	}
	check("no egress", nil, true)
	check("public addresses", []v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}}, true)
	check("a public network", []v1alpha1.SessionEgress{{To: testbuilder.Block("140.82.112.0/20")}}, true)
	check("all addresses, one port", []v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(443, 443)}}, true)
	check("all addresses, the port by UDP", []v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(deniedPort, nil, corev1.ProtocolUDP)}}}, true)
	check("all addresses, the port", []v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(deniedPort, deniedPort)}}, false)
	check("all addresses, all ports", []v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0")}}, false)
	check("a private network", []v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}, {To: testbuilder.Block("10.1.0.0/16")}}, false)
	check("an IPv6 network", []v1alpha1.SessionEgress{{To: testbuilder.Block("2a00::/16")}}, false)
	check("Pods of the namespace", []v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{PodSelector: operator})}, true)
	check("other Pods of all namespaces", []v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: other})}, true)
	check("the operator's Pods", []v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: operator})}, false)
	check("all Pods of some namespaces", []v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: other})}, false)
	check("a private network, as a peer", []v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/16"}})}, false)
	check("a network that contains a private", []v1alpha1.SessionEgress{{To: testbuilder.Block("8.0.0.0/6")}}, false)
}

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
	check := func(title string, egress []v1alpha1.SessionEgress, dns bool, ruleCount int) {
		t.Run(title, func(t *testing.T) {
			s := newProxyScenario(t)
			s.Runner.Spec.Network.Egress = egress
			policy := newSessionNetworkPolicy(s.Session, s.Runner, nil, &s.Network, &s.NetworkCheck)
			hasDNS := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return rule.Ports[0].Port.IntVal == 53 })
			require.True(t, hasDNS == dns && len(policy.Spec.Egress) == ruleCount, "DNS %t, %+v", hasDNS, policy.Spec.Egress)
			env, usesProxy := s.startAttempt().podSpec().Containers[0].Env, strings.Contains(title, "hosts")
			hasVariables := slices.ContainsFunc(env, func(v corev1.EnvVar) bool { return slices.Contains(proxyVariables, v.Name) })
			hasToken := s.Session.Status.Attempt.EgressTokenExpires != nil
			require.True(t, hasVariables == usesProxy && hasToken == usesProxy, "it has a token: %t, and variables: %t", hasToken, hasVariables)
			if !dns {
				rule := policy.Spec.Egress[0]
				isProxy := rule.To[0].NamespaceSelector == nil && rule.To[0].PodSelector.MatchLabels[workload.Label] != ""
				require.True(t, isProxy && len(rule.To) == 1 && len(rule.Ports) == 1 && rule.Ports[0].Port.IntVal == workload.Port, "%+v", rule)
			}
		})
	}
	check("hosts only", []v1alpha1.SessionEgress{{Hosts: hosts}}, false, 1)
	check("hosts and a network", []v1alpha1.SessionEgress{{Hosts: hosts}, other}, true, 3)
	check("a network only", []v1alpha1.SessionEgress{other}, true, 2)
	check("nothing", nil, true, 1)
	check("two rules with hosts", []v1alpha1.SessionEgress{{Hosts: hosts}, {Hosts: hosts}}, false, 2)
	proxy := &workload.Proxy{Namespace: "ns", Network: &NetworkSettings{}}
	np, _ := proxy.Dependents(proxy.Deployment())[0].(*networkingv1.NetworkPolicy)
	require.True(t, np.Spec.Ingress[0].From[0].PodSelector.MatchExpressions[0].Key == LabelSessionUID && SelectedSessions(np) == "", "%+v", np.Spec)
}

func TestPolicyThatAllowsAHostOnlySessionMoreThanTheProxyIsFound(t *testing.T) {
	s := newProxyScenario(t)
	toProxy := networkingv1.NetworkPolicyPeer{PodSelector: workload.Selector()}
	check := func(title string, spec networkingv1.NetworkPolicySpec, want bool) {
		t.Run(title, func(t *testing.T) {
			policy := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: spec}
			wanted := newSessionNetworkPolicy(s.Session, s.Runner, nil, &s.Network, &s.NetworkCheck)
			require.Equal(t, want, findWideningPolicy([]networkingv1.NetworkPolicy{policy}, podLabels(s.Session, s.Runner), wanted) != nil)
		})
	}
	check("the proxy", egressTo(testbuilder.PortRange(workload.Port, workload.Port), toProxy), false)
	check("its metrics", egressTo(testbuilder.PortRange(9464, 9464), toProxy), true)
	check("proxies everywhere", egressTo(testbuilder.PortRange(workload.Port, workload.Port), networkingv1.NetworkPolicyPeer{PodSelector: workload.Selector(), NamespaceSelector: &metav1.LabelSelector{}}), true)
	check("DNS", networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{s.Network.AllowDNS()}}, true)
	check("the address of a proxy", egressTo(testbuilder.PortRange(workload.Port, workload.Port), blockPeer("10.96.0.9/32")), true)
}

func TestTokenOfASessionInAQueueOutlastsItsWait(t *testing.T) {
	s := newProxyScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(3600) })
	s.Runner.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{queueLabel: "team-a"}}
	s.startAttempt()
	expires := s.Session.Status.Attempt.EgressTokenExpires
	require.True(t, expires.Sub(s.Now) >= 300*24*time.Hour, "the token expires at %s", expires)
}

func TestSessionGetsTheProxyWithItsOwnTokenOnlyInASecret(t *testing.T) {
	s := newProxyScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.Timeout = seconds(7200) })
	s.Runner.Spec.Limits.Timeout = seconds(3600) // the lower limit applies
	testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("gateway", "x")}
	setArchive(archiveInClaim)(s)
	decision := s.decideAndRecord()
	inputs := decision.ApplyObjects[3].(*corev1.Secret)
	url := string(inputs.Data[proxyURLKey])
	token, _, _ := strings.Cut(strings.TrimPrefix(url, "http://fix:"), "@")
	public := adminauth.ParsePublicKeys([]byte(s.Keys.PublicKey()))
	end := s.Now.Add(time.Hour)
	session, expires, err := adminauth.VerifySession(token, public, "ns", end)
	want := adminauth.Session{Namespace: "ns", Name: "fix", UID: "session", Runner: "default"}
	require.True(t, err == nil && session == want && strings.HasSuffix(url, "@10.96.0.9:3128"), "%s: %+v, %v", url, session, err)
	require.True(t, !expires.Before(end) && !expires.After(end.Add(proxyTokenMargin)), "the token expires at %s, the session at %s", expires, end)
	pod := decision.CreateJob.Spec.Template.Spec
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
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
	repo := func(url v1alpha1.GitURL) func(s *scenario) {
		return func(s *scenario) {
			s.Session.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: url}}}
		}
	}
	check := func(title string, change func(s *scenario), want string) {
		t.Run(title, func(t *testing.T) {
			s := newProxyScenario(t)
			change(s)
			if want == "" {
				s.startAttempt()
			} else {
				s.wantNotAccepted(want)
			}
		})
	}
	check("an HTTPS repository", repo("https://github.com/a/b"), "")
	check("an SSH repository", repo("ssh://git@github.com/a/b"), "spec.repos[0].url: Forbidden: SessionRunner default allows only TLS connections to hosts, and not SSH")
	check("an scp repository", repo("git@github.com:a/b"), "spec.repos[0].url: Forbidden")
	check("an SSH repository, and another rule", func(s *scenario) {
		repo("git@github.com:a/b")(s)
		s.Runner.Spec.Network.Egress = append(s.Runner.Spec.Network.Egress, v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: testbuilder.Ports(22)})
	}, "")
	check("an SSH workflow", func(s *scenario) {
		s.Session.Spec.Agent.Workflow = &v1alpha1.SessionWorkflow{GitSource: v1alpha1.GitSource{URL: "git@github.com:a/b"}}
	}, "spec.agent.workflow.url: Forbidden")
	check("another proxy of the session", func(s *scenario) {
		s.Session.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"https_proxy": "http://evil"}
	}, "spec.environmentVariables[https_proxy]: Forbidden")
	check("another proxy of the runner", func(s *scenario) {
		testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://evil"}}
	}, "HTTPS_PROXY is set by the operator")
	check("an address as a host", func(s *scenario) {
		s.Runner.Spec.Network.Egress[0].Hosts = []v1alpha1.EgressHost{"10.0.0.1"}
	}, `spec.network.egress[0].hosts[0]: Invalid value: "10.0.0.1"`)
}
