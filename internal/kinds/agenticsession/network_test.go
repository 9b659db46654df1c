package agenticsession

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func blockPeer(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func tcpPorts(first, last int32) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(first)), EndPort: &last}}
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
		"no rules":                                 {networkingv1.NetworkPolicySpec{}, false},
		"all egress":                               {everything, true},
		"all ingress":                              {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}, true},
		"the same egress":                          {egressTo(tcpPorts(443, 443), blockPeer("10.0.0.0/8", "10.1.0.0/16")), false},
		"a part of the egress":                     {egressTo(tcpPorts(443, 443), blockPeer("10.2.0.0/16")), false},
		"a network with a larger exception":        {egressTo(tcpPorts(443, 443), blockPeer("10.0.0.0/8", "10.0.0.0/12")), false},
		"a named port":                             {egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("https"))}}, blockPeer("10.2.0.0/16")), true},
		"UDP":                                      {egressTo([]networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(443)), Protocol: new(corev1.ProtocolUDP)}}, blockPeer("10.2.0.0/16")), true},
		"one allowed and one other network":        {egressTo(tcpPorts(443, 443), blockPeer("10.2.0.0/16"), blockPeer("192.168.0.0/16")), true},
		"Pods":                                     {egressTo(tcpPorts(443, 443), visitor), true},
		"the visitors that may connect":            {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{visitor}, Ports: tcpPorts(8080, 8080)}}}, false},
		"visitors from all namespaces":             {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, Ports: tcpPorts(8080, 8080)}}}, true},
		"all egress of other Pods":                 {selecting(metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, everything), false},
		"all egress of Pods with a label of the SessionRunner": {selecting(metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, everything), true},
		"all egress of Pods without a session":     {selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: LabelSessionUID, Operator: metav1.LabelSelectorOpDoesNotExist}}}, everything), false},
		"all egress of Pods without the label app": {selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}, everything), true},
		"all egress of this session":               {selecting(metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "session"}}, everything), true},
		"all egress of another session":            {selecting(metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "other"}}, everything), false},
		"all egress of what the operator manages":  {selecting(metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue}}, everything), true},
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
	network := func(bits int) string { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))}), bits).Masked().String() }
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
			rule.Ports = tcpPorts(first, first+int32(r.IntN(3)))
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
