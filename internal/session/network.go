package session

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// metadataNetworks contain the addresses at which clouds serve a node's credentials.
var metadataNetworks = parsePrefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32")

// publicNetworks are the networks with public addresses, by the registries of special addresses of IANA. They
// contain networks that are not public, such as private and shared ones, and those that translate to others.
var publicNetworks = map[netip.Prefix][]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/0"): parsePrefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
		"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/4", "240.0.0.0/4"),
	netip.MustParsePrefix("2000::/3"): parsePrefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
}

func parsePrefixes(texts ...string) []netip.Prefix {
	networks := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		networks[i] = netip.MustParsePrefix(text)
	}
	return networks
}

// NetworkSettings are the properties of the cluster's network.
type NetworkSettings struct {
	// ClusterNetworks are networks of the cluster. The profile PublicOnly does not contain them.
	ClusterNetworks []netip.Prefix
	// DNSNamespace and DNSSelector select the Pods that resolve names. Default: k8s-app=kube-dns in kube-system.
	DNSNamespace string
	DNSSelector  *metav1.LabelSelector
	// DNSNetworks are further addresses that resolve names, such as that of NodeLocal DNSCache.
	DNSNetworks []netip.Prefix
	// DNSPort is the port on which they do. Default: 53.
	DNSPort int32
}

// DefaultDenyPolicyName is the name of the NetworkPolicy that denies the Pods of all sessions of a namespace every
// connection.
const DefaultDenyPolicyName = "yardmaster-sessions-default-deny"

// NewDefaultDenyPolicy returns that policy. The policies of sessions only add to it. No session owns it, and it is
// never deleted: the garbage collector deletes the policy of a deleted session at once, but the session's Pod lives
// on until it has ended.
func NewDefaultDenyPolicy(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Name: DefaultDenyPolicyName, Namespace: namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: LabelSessionUID, Operator: metav1.LabelSelectorOpExists}}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// buildNetworkPolicy returns the NetworkPolicy of the session's Pods: it allows what the
// SessionRunner names and the cluster's DNS.
func buildNetworkPolicy(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner, settings *NetworkSettings) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: childMetadata(s, NetworkPolicyName(s.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: string(s.UID)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{settings.allowDNS()},
		},
	}
	for i := range runner.Spec.Egress {
		policy.Spec.Egress = append(policy.Spec.Egress, settings.egressRule(&runner.Spec.Egress[i]))
	}
	if s.Spec.Interactive && len(runner.Spec.IngressFrom) > 0 {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  runner.Spec.DeepCopy().IngressFrom,
			Ports: []networkingv1.NetworkPolicyPort{networkPolicyPort(sessionPort(runner), nil, corev1.ProtocolTCP)},
		}}
	}
	return policy
}

// allowDNS returns the rule that allows name resolution by the cluster's DNS.
func (n *NetworkSettings) allowDNS() networkingv1.NetworkPolicyEgressRule {
	const defaultPort = 53
	selector, port := n.DNSSelector, cmp.Or(n.DNSPort, defaultPort)
	if selector == nil {
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}
	}
	peers := []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: cmp.Or(n.DNSNamespace, metav1.NamespaceSystem)}},
		PodSelector:       selector,
	}}
	for _, network := range n.DNSNetworks {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: network.String()}})
	}
	return networkingv1.NetworkPolicyEgressRule{
		To:    peers,
		Ports: []networkingv1.NetworkPolicyPort{networkPolicyPort(port, nil, corev1.ProtocolUDP), networkPolicyPort(port, nil, corev1.ProtocolTCP)},
	}
}

func (n *NetworkSettings) egressRule(rule *v1alpha1.SessionEgress) networkingv1.NetworkPolicyEgressRule {
	allowed := networkingv1.NetworkPolicyEgressRule{}
	switch {
	case rule.To != nil:
		allowed.To = []networkingv1.NetworkPolicyPeer{*rule.To.DeepCopy()}
	case rule.Profile == v1alpha1.EgressPublicOnly:
		for _, network := range slices.SortedFunc(maps.Keys(publicNetworks), netip.Prefix.Compare) {
			allowed.To = append(allowed.To, blockWithout(network.String(), nil, slices.Concat(publicNetworks[network], n.ClusterNetworks)))
		}
	default:
		allowed.To = []networkingv1.NetworkPolicyPeer{blockWithout(rule.CIDR, rule.Except, metadataNetworks)}
	}
	for _, port := range rule.Ports {
		allowed.Ports = append(allowed.Ports, networkPolicyPort(port.Port, port.EndPort, port.Protocol))
	}
	return allowed
}

// blockWithout returns a network without exceptions and without those of the denied networks that are a part of it.
func blockWithout(cidr string, except []string, denied []netip.Prefix) networkingv1.NetworkPolicyPeer {
	block := &networkingv1.IPBlock{CIDR: cidr, Except: slices.Clone(except)}
	for _, network := range denied {
		if isSubnet(network.String(), cidr) && !isExcepted(network, block.Except) {
			block.Except = append(block.Except, network.String())
		}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: block}
}

func isExcepted(network netip.Prefix, exceptions []string) bool {
	return slices.ContainsFunc(exceptions, func(except string) bool { return isSubnetOrEqual(network.String(), except) })
}

func networkPolicyPort(port int32, end *int32, protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(port)), EndPort: end, Protocol: &protocol}
}

// IsNetworkPolicyCurrent reports whether a NetworkPolicy exists, and is as the operator creates it.
func IsNetworkPolicyCurrent(found, want *networkingv1.NetworkPolicy) bool {
	if found == nil || !equality.Semantic.DeepEqual(found.Spec, want.Spec) {
		return false
	}
	controller, wanted := metav1.GetControllerOfNoCopy(found), metav1.GetControllerOfNoCopy(want)
	if controller == nil || wanted == nil {
		return controller == wanted
	}
	return controller.UID == wanted.UID
}

func findNetworkPolicy(policies []networkingv1.NetworkPolicy, name string) *networkingv1.NetworkPolicy {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i]
		}
	}
	return nil
}
