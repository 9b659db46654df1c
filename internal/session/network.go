package session

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// linkLocalNetworks contain the addresses at which clouds serve a node's credentials.
var linkLocalNetworks = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32")}

// buildNetworkPolicy returns the NetworkPolicy of the session's Pods: it allows what the
// SessionRunner names and the cluster's DNS.
func buildNetworkPolicy(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: childMetadata(s, NetworkPolicyName(s.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: string(s.UID)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{allowClusterDNS()},
		},
	}
	for i := range runner.Spec.Egress {
		policy.Spec.Egress = append(policy.Spec.Egress, egressRule(&runner.Spec.Egress[i]))
	}
	if s.Spec.Interactive && len(runner.Spec.IngressFrom) > 0 {
		port := runner.Spec.Port
		if port == 0 {
			port = defaultSessionPort
		}
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  runner.Spec.DeepCopy().IngressFrom,
			Ports: []networkingv1.NetworkPolicyPort{networkPolicyPort(port, nil, corev1.ProtocolTCP)},
		}}
	}
	return policy
}

// allowClusterDNS returns the rule that allows name resolution by the cluster's DNS.
func allowClusterDNS() networkingv1.NetworkPolicyEgressRule {
	const port = 53
	return networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		}},
		Ports: []networkingv1.NetworkPolicyPort{networkPolicyPort(port, nil, corev1.ProtocolUDP), networkPolicyPort(port, nil, corev1.ProtocolTCP)},
	}
}

func egressRule(rule *v1alpha1.SessionEgress) networkingv1.NetworkPolicyEgressRule {
	block := &networkingv1.IPBlock{CIDR: rule.CIDR, Except: append([]string(nil), rule.Except...)}
	for _, local := range linkLocalNetworks {
		if isSubnet(local.String(), rule.CIDR) && !isExcepted(local, rule.Except) {
			block.Except = append(block.Except, local.String())
		}
	}
	allowed := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: block}}}
	for _, port := range rule.Ports {
		allowed.Ports = append(allowed.Ports, networkPolicyPort(port.Port, port.EndPort, port.Protocol))
	}
	return allowed
}

func isExcepted(network netip.Prefix, exceptions []string) bool {
	for _, text := range exceptions {
		if other, err := netip.ParsePrefix(text); err == nil && (other == network || isSubnet(network.String(), text)) {
			return true
		}
	}
	return false
}

func networkPolicyPort(port int32, end *int32, protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(port)), EndPort: end, Protocol: &protocol}
}

func isNetworkPolicyApplied(found, want *networkingv1.NetworkPolicy) bool {
	return found != nil && equality.Semantic.DeepEqual(found.Spec, want.Spec)
}
