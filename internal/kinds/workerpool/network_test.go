package workerpool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// networkPolicyOf returns the NetworkPolicy that a decision applies; nil if it applies none.
func networkPolicyOf(decision *Decision) *networkingv1.NetworkPolicy {
	for _, object := range decision.SharedObjects {
		if policy, is := object.(*networkingv1.NetworkPolicy); is {
			return policy
		}
	}
	return nil
}

// admits reports whether a rule for all peers admits connections to a port.
func admits(policy *networkingv1.NetworkPolicy, protocol corev1.Protocol, port int32) bool {
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			first := p.Port.IntVal
			if len(rule.From) == 0 && *p.Protocol == protocol && port >= first && port <= ptr.Deref(p.EndPort, first) {
				return true
			}
		}
	}
	return false
}

func TestOnlyTheOperatorCanConnectToTheAdminPort(t *testing.T) {
	s := newTestPool(1)
	s.Operator.Namespace = "yardmaster-system"
	decision := Decide(s.Observation)
	policy := networkPolicyOf(&decision)
	want := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "yardmaster-system"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "yardmaster", "app.kubernetes.io/component": "operator"}},
		}},
		Ports: []networkingv1.NetworkPolicyPort{portRange(corev1.ProtocolTCP, 8081, 8081)},
	}
	require.Equal(t, want, policy.Spec.Ingress[0])
	require.True(t, !admits(policy, corev1.ProtocolTCP, 8081), "all peers can connect to the admin port")
	for _, port := range []int32{1, 8080, 8082, MetricsPort, 65535} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			require.True(t, admits(policy, protocol, port), "port %d is closed for %s", port, protocol)
		}
	}
	require.True(t, admits(policy, corev1.ProtocolUDP, 8081), "UDP port 8081 is closed")
	pod := labels.Set(TemplateOf(newFleet(s.Observation).updated.workload).Labels)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.True(t, err == nil && selector.Matches(pod) && !selector.Matches(labels.Set{LabelWorkerPool: "other"}), "selector %s, %v", selector, err)
}

func TestOtherNetworkPoliciesDecideAboutTheOtherPorts(t *testing.T) {
	egress := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}
	selecting := func(name, value string) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{name: value}}}
	}
	for title, row := range map[string]struct {
		other networkingv1.NetworkPolicy
		want  bool
	}{
		"one that denies everything in the namespace":  {networkingv1.NetworkPolicy{}, false},
		"one that selects a label of the workers":      {networkingv1.NetworkPolicy{Spec: selecting("app", "mail")}, false},
		"one that selects a label that all pools have": {networkingv1.NetworkPolicy{Spec: selecting(LabelWorkerPool, "mail")}, false},
		"one that selects other Pods":                  {networkingv1.NetworkPolicy{Spec: selecting("app", "other")}, true},
		"one that restricts only outgoing connections": {networkingv1.NetworkPolicy{Spec: egress}, true},
		"its own": {
			networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "pool", Controller: new(true)}}},
				Spec:       selecting(LabelWorkerPool, "mail"),
			}, true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Namespace = "yardmaster-system"
			s.Pool.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "mail"}}}
			s.NetworkPolicies = []networkingv1.NetworkPolicy{row.other}
			decision := Decide(s.Observation)
			policy := networkPolicyOf(&decision)
			opens := admits(policy, corev1.ProtocolTCP, 8080)
			require.True(t, opens == row.want && len(policy.Spec.Ingress[0].From) > 0, "opens other ports: %t; rules %+v", opens, policy.Spec.Ingress)
		})
	}
}

func TestWithoutAManagedNetworkPolicyNoPodIsSelected(t *testing.T) {
	s := newTestPool(1)
	decision := Decide(s.Observation)
	require.True(t, networkPolicyOf(&decision) == nil, "an operator outside a cluster creates a NetworkPolicy")
	s.Operator.Namespace = "yardmaster-system"
	s.Pool.Spec.NetworkPolicy = v1alpha1.PoolNetworkPolicyNone
	decision = Decide(s.Observation)
	selector, err := metav1.LabelSelectorAsSelector(&networkPolicyOf(&decision).Spec.PodSelector)
	pod := labels.Set(TemplateOf(newFleet(s.Observation).updated.workload).Labels)
	require.True(t, err == nil && !selector.Matches(pod) && !selector.Matches(labels.Set{}), "selector %s, %v", selector, err)
}
