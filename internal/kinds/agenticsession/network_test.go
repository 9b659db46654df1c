package agenticsession

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
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

// TestNoPolicyThatAllowsMoreIsMissed tries networks and ports.
func TestPolicyThatAllowsMoreThanTheSessionRunnerIsFound(t *testing.T) {
	visitor := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ui"}}}
	selecting := func(selector metav1.LabelSelector, spec networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicySpec {
		spec.PodSelector = selector
		return spec
	}
	everything := networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}}
	for title, test := range map[string]struct {
		other networkingv1.NetworkPolicySpec
		want  bool
	}{
		"no rules":                          {networkingv1.NetworkPolicySpec{}, false},
		"all egress":                        {everything, true},
		"all ingress":                       {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}, true},
		"the same egress":                   {egressTo(testbuilder.PortRange(443, 443), blockPeer("10.0.0.0/8", "10.1.0.0/16")), false},
		"a part of the egress":              {egressTo(testbuilder.PortRange(443, 443), blockPeer("10.2.0.0/16")), false},
		"a network with a larger exception": {egressTo(testbuilder.PortRange(443, 443), blockPeer("10.0.0.0/8", "10.0.0.0/12")), false},
		"a named port":                      {egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("https"))}}, blockPeer("10.2.0.0/16")), true},
		"UDP":                               {egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(443)), Protocol: new(corev1.ProtocolUDP)}}, blockPeer("10.2.0.0/16")), true},
		"one allowed and one other network": {egressTo(testbuilder.PortRange(443, 443), blockPeer("10.2.0.0/16"), blockPeer("192.168.0.0/16")), true},
		"Pods":                              {egressTo(testbuilder.PortRange(443, 443), visitor), true},
		"the visitors that may connect":     {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{visitor}, Ports: testbuilder.PortRange(8080, 8080)}}}, false},
		"visitors from all namespaces":      {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, Ports: testbuilder.PortRange(8080, 8080)}}}, true},
		"all egress of other Pods":          {selecting(metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, everything), false},
		"all egress of Pods with a label of the SessionRunner": {selecting(metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, everything), true},
		"all egress of Pods without a session":                 {selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: LabelSessionUID, Operator: metav1.LabelSelectorOpDoesNotExist}}}, everything), false},
		"all egress of Pods without the label app":             {selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}, everything), true},
		"all egress of this session":                           {selecting(metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "session"}}, everything), true},
		"all egress of another session":                        {selecting(metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "other"}}, everything), false},
		"all egress of what the operator manages":              {selecting(metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue}}, everything), true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newWidenedScenario(t, test.other)
			s.decideAndRecord()
			if test.want {
				s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
			} else {
				s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
			}
		})
	}
}

// newWidenedScenario returns a running interactive session in a namespace with another NetworkPolicy.
func newWidenedScenario(t *testing.T, other networkingv1.NetworkPolicySpec) *scenario {
	t.Helper()
	s := newScenario(t, setInteractive)
	testbuilder.RunnerPod(&s.Runner.Spec)
	s.Runner.Spec.Template.Labels = map[string]string{"team": "a"}
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16"), Ports: testbuilder.Ports(443)}}
	s.Runner.Spec.Network.IngressFrom = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ui"}}}}
	decision := s.decideAndRecord()
	s.createPlannedJob(decision)
	s.createNetworkPolicies(decision)
	s.NetworkPolicies = append(s.NetworkPolicies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "ns"}, Spec: other})
	return s
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
	exists := func(key string, operator metav1.LabelSelectorOperator) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator}}}
	}
	for title, test := range map[string]struct {
		selector metav1.LabelSelector
		want     string
	}{
		"everything":                      {metav1.LabelSelector{}, AllSessions},
		"the Pods of sessions":            {exists(LabelSessionUID, metav1.LabelSelectorOpExists), AllSessions},
		"the Pods of one session":         {metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "1"}}, "1"},
		"Pods with another label":         {metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, AllSessions},
		"Pods that have another label":    {exists("app", metav1.LabelSelectorOpExists), AllSessions},
		"the workers of a pool":           {metav1.LabelSelector{MatchLabels: map[string]string{"yardmaster.dev/workerpool": "a"}}, ""},
		"all workers":                     {exists("yardmaster.dev/workerpool", metav1.LabelSelectorOpExists), ""},
		"Pods without another label":      {exists("app", metav1.LabelSelectorOpDoesNotExist), AllSessions},
		"one session's Pods with a label": {metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "1", "app": "a"}}, "1"},
		"one session's Pods without a label": {metav1.LabelSelector{
			MatchLabels: map[string]string{LabelSessionUID: "1"}, MatchExpressions: exists("app", metav1.LabelSelectorOpNotIn).MatchExpressions,
		}, "1"},
	} {
		got := SelectedSessions(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: test.selector}})
		require.True(t, got == test.want, "%s: %q, want %q", title, got, test.want)
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
	for timeout, argument := range map[*v1alpha1.Duration]string{
		nil: "--timeout=10m0s", seconds(0): "--timeout=168h0m0s", seconds(90): "--timeout=1m30s",
	} {
		s := newCheckedScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = timeout })
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
		containers := s.startChecked().podSpec().InitContainers
		require.True(t, len(containers) == 2 && containers[0].Name == checkContainer && containers[0].RestartPolicy == nil,
			"init containers are %+v, want the check first, which ends before the sidecar starts", containers)
		want := append([]string{"network-check", "--result-file=/dev/termination-log", argument}, addresses...)
		require.Equal(t, want, containers[0].Args)
		require.True(t, containers[0].Image == "operator:1" && len(containers[0].VolumeMounts) == 0, "the check is %+v", containers[0])
	}
}

// A check that does not succeed fails the session, which is not retried, unless its SessionRunner accepts that.
func TestTheResultOfTheNetworkCheckIsReported(t *testing.T) {
	const failed, creating = v1alpha1.SessionFailed, v1alpha1.SessionCreating
	const isTrue, isFalse, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for title, test := range map[string]struct {
		end        func(*scenario)
		wantStatus metav1.ConditionStatus
		wantReason string
		wantPhase  v1alpha1.SessionPhase
	}{
		"the check has not ended": {func(*scenario) {}, unknown, v1alpha1.ReasonNetworkCheckPending, creating},
		"enforced":                {func(s *scenario) { s.endCheck(networkcheck.Enforced, 0) }, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, creating},
		"not enforced": {func(s *scenario) {
			s.endCheck(networkcheck.NotEnforced, networkcheck.ExitNotEnforced)
		}, isFalse, v1alpha1.ReasonNetworkNotEnforced, failed},
		"not enforced, accepted": {func(s *scenario) { s.endCheck(networkcheck.NotEnforced, 0) }, isFalse, v1alpha1.ReasonNetworkNotEnforced, creating},
		"unknown": {func(s *scenario) {
			s.endCheck(networkcheck.Unknown, networkcheck.ExitUnknown)
		}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed},
		"killed": {func(s *scenario) { s.endCheck(networkcheck.Unknown, 137) }, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed},
		"enforced, Pod deleted": {func(s *scenario) {
			s.endCheck(networkcheck.Enforced, 0).startRunner().decideAndRecord()
			s.Pods = nil
		}, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, v1alpha1.SessionRunning},
	} {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t, withRetryLimit(3)).startChecked()
			test.end(s)
			s.decideAndRecord()
			s.wantCondition(v1alpha1.ConditionNetworkRestricted, test.wantStatus, test.wantReason)
			status := &s.Session.Status
			require.True(t, status.Phase == test.wantPhase && (status.Phase != failed || status.Attempts[0].Reason == test.wantReason),
				"phase %s, %+v", status.Phase, status.Attempts)
		})
	}
}

func TestSessionWaitsWhileTheAddressOfTheOperatorIsUnknown(t *testing.T) {
	s := newCheckedScenario(t)
	s.NetworkCheck.Addresses = nil
	decision := s.decideAndRecord()
	require.True(t, decision.CreateJob == nil && decision.RequeueAfter <= addressInterval && decision.RequeueAfter > 0,
		"a Job %v, next decision after %s; want none, and after %s", decision.CreateJob, decision.RequeueAfter, addressInterval)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNetworkEnforcementUnknown)
	s.NetworkCheck.Addresses = testCheck.Addresses
	s.startAttempt()
}

func TestSessionRunnerCanAcceptANetworkThatIsNotEnforced(t *testing.T) {
	s := newCheckedScenario(t)
	s.Runner.Spec.Network.Isolation = v1alpha1.NetworkIsolationPreferred
	s.startChecked()
	require.Contains(t, strings.Join(s.podSpec().InitContainers[0].Args, " "), "--report-only=true")
	s = newCheckedScenario(t)
	s.Runner.Spec.Network.Isolation, s.NetworkCheck.Addresses = v1alpha1.NetworkIsolationPreferred, nil
	s.startAttempt()
}

func TestPoliciesForImagesDoNotConcernTheNetworkCheck(t *testing.T) {
	s := newCheckedScenario(t)
	s.Policies = testbuilder.AllowImages("runner:*")
	s.startAttempt()
}

func TestNetworkIsCheckedUnlessTheSessionRunnerMayAllowWhatMustFail(t *testing.T) {
	peer := func(p networkingv1.NetworkPolicyPeer) v1alpha1.SessionEgress { return v1alpha1.SessionEgress{To: &p} }
	operator := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "yardmaster"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "git"}}
	for title, test := range map[string]struct {
		egress []v1alpha1.SessionEgress
		want   bool
	}{
		"no egress":                         {nil, true},
		"public addresses":                  {[]v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}}, true},
		"a public network":                  {[]v1alpha1.SessionEgress{{To: testbuilder.Block("140.82.112.0/20")}}, true},
		"all addresses, one port":           {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(443, 443)}}, true},
		"all addresses, the port by UDP":    {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(deniedPort, nil, corev1.ProtocolUDP)}}}, true},
		"all addresses, the port":           {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(deniedPort, deniedPort)}}, false},
		"all addresses, all ports":          {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0")}}, false},
		"a private network":                 {[]v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}, {To: testbuilder.Block("10.1.0.0/16")}}, false},
		"an IPv6 network":                   {[]v1alpha1.SessionEgress{{To: testbuilder.Block("2a00::/16")}}, false},
		"Pods of the namespace":             {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{PodSelector: operator})}, true},
		"other Pods of all namespaces":      {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: other})}, true},
		"the operator's Pods":               {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: operator})}, false},
		"all Pods of some namespaces":       {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: other})}, false},
		"a private network, as a peer":      {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/16"}})}, false},
		"a network that contains a private": {[]v1alpha1.SessionEgress{{To: testbuilder.Block("8.0.0.0/6")}}, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t)
			for i := range test.egress {
				if test.egress[i].Ports == nil {
					test.egress[i].Ports = testbuilder.PortRange(1, 65535)
				}
			}
			s.Runner.Spec.Network.Egress = test.egress
			s.startChecked()
			hasCheck := slices.ContainsFunc(s.newestJob().Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == checkContainer })
			own := findNetworkPolicy(s.NetworkPolicies, NetworkPolicyName(s.Session.Name))
			allowsControl := slices.ContainsFunc(own.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return len(rule.Ports) == 1 && rule.Ports[0].Port.IntVal == networkcheck.ControlPort
			})
			require.True(t, hasCheck == test.want && allowsControl == test.want,
				"check: %t, control port allowed: %t, want %t", hasCheck, allowsControl, test.want)
		})
	}
}
