package sessionrunner

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MetadataNetworks contain the addresses at which clouds serve a node's credentials.
var MetadataNetworks = parsePrefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32")

var allIPv4 = netip.MustParsePrefix("0.0.0.0/0")

// publicNetworks are the networks with public addresses, and the networks in them that are not public, by IANA's registries of
// special addresses. Networks that translate to other addresses are not public.
var publicNetworks = map[netip.Prefix][]netip.Prefix{
	allIPv4: parsePrefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
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

// Network has the properties of the cluster's network.
type Network struct {
	// ClusterNetworks are networks of the cluster. The profile PublicOnly does not contain them.
	ClusterNetworks []netip.Prefix
	// ProxyNetworks are further networks, for example of an internal Git server, that egress proxies may reach.
	ProxyNetworks []netip.Prefix
	// DNSNamespace and DNSSelector select the Pods that resolve names. Default: k8s-app=kube-dns in kube-system.
	DNSNamespace string
	DNSSelector  *metav1.LabelSelector
	// DNSNetworks are further addresses that resolve names, such as the address of NodeLocal DNSCache.
	DNSNetworks []netip.Prefix
	// DNSPort is the port of the DNS. Default: 53.
	DNSPort int32
	// APIServer are the rules that allow connections to the API server; none if its addresses are unknown.
	APIServer []networkingv1.NetworkPolicyEgressRule
}

// AllowsProxy reports whether an egress proxy may connect to an address: to a public address outside the cluster, or to an
// address in ProxyNetworks. IPv6 addresses that translate to IPv4 are not public, and addresses at which clouds serve
// credentials are never allowed.
func (n *Network) AllowsProxy(address netip.Addr) bool {
	if address.Zone() != "" {
		return false
	}
	address = address.Unmap()
	isIn := func(networks []netip.Prefix) bool {
		return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
	}
	if isIn(MetadataNetworks) {
		return false
	}
	if isIn(n.ProxyNetworks) {
		return true
	}
	for public, except := range publicNetworks {
		if public.Contains(address) {
			return !isIn(except) && !isIn(n.ClusterNetworks)
		}
	}
	return false
}

// HasAllPublic reports whether a network has all public IPv4 or IPv6 addresses. As a network of the cluster, it would leave none.
func HasAllPublic(network netip.Prefix) bool {
	for public := range publicNetworks {
		if IsSubnetOrEqual(public.String(), network.String()) {
			return true
		}
	}
	return false
}

// PublicPeers returns all public addresses outside the cluster.
func (n *Network) PublicPeers() []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for _, network := range slices.SortedFunc(maps.Keys(publicNetworks), netip.Prefix.Compare) {
		peers = append(peers, BlockWithout(network.String(), nil, slices.Concat(publicNetworks[network], n.ClusterNetworks)))
	}
	return peers
}

// ProxyPeers returns all addresses that an egress proxy may connect to. A proxy network that consists of metadata addresses allows none.
func (n *Network) ProxyPeers() []networkingv1.NetworkPolicyPeer {
	peers := n.PublicPeers()
	for _, network := range n.ProxyNetworks {
		isMetadata := func(metadata netip.Prefix) bool { return IsSubnetOrEqual(network.String(), metadata.String()) }
		if !slices.ContainsFunc(MetadataNetworks, isMetadata) {
			peers = append(peers, BlockWithout(network.String(), nil, MetadataNetworks))
		}
	}
	return peers
}

// AllowDNS returns the rule that allows name resolution by the cluster's DNS.
func (n *Network) AllowDNS() networkingv1.NetworkPolicyEgressRule {
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
		Ports: []networkingv1.NetworkPolicyPort{PolicyPort(port, nil, corev1.ProtocolUDP), PolicyPort(port, nil, corev1.ProtocolTCP)},
	}
}

// BlockWithout returns a network without the exceptions and without the denied networks that are a part of it.
func BlockWithout(cidr string, except []string, denied []netip.Prefix) networkingv1.NetworkPolicyPeer {
	block := &networkingv1.IPBlock{CIDR: cidr, Except: slices.Clone(except)}
	for _, network := range denied {
		isExcepted := slices.ContainsFunc(block.Except, func(excepted string) bool { return IsSubnetOrEqual(network.String(), excepted) })
		if IsSubnet(network.String(), cidr) && !isExcepted {
			block.Except = append(block.Except, network.String())
		}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: block}
}

// IsSubnet reports whether one network is a proper part of another.
func IsSubnet(inner, outer string) bool {
	return IsSubnetOrEqual(inner, outer) && !IsSubnetOrEqual(outer, inner)
}

// IsSubnetOrEqual reports whether one network is a part of another.
func IsSubnetOrEqual(inner, outer string) bool {
	in, err := netip.ParsePrefix(inner)
	if err != nil {
		return false
	}
	out, err := netip.ParsePrefix(outer)
	return err == nil && in.Bits() >= out.Bits() && out.Contains(in.Addr())
}

// IsPublicIPv4 reports whether a network contains only public IPv4 addresses.
func IsPublicIPv4(cidr string) bool {
	network, err := netip.ParsePrefix(cidr)
	if err != nil || !network.Addr().Is4() {
		return false
	}
	return !slices.ContainsFunc(publicNetworks[allIPv4], network.Overlaps)
}

// PolicyPort returns a port of a NetworkPolicy. Default protocol: TCP.
func PolicyPort(port int32, end *int32, protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(port)), EndPort: end, Protocol: new(cmp.Or(protocol, corev1.ProtocolTCP))}
}

// maxAPIServerAddresses bounds the size of a NetworkPolicy. No cluster has nearly as many API servers.
const maxAPIServerAddresses = 64

// AllowAPIServer returns the rules that allow connections to the API server: to its Service, and to its endpoints, because some
// network plugins enforce policies before the Service's address is translated, and others after.
func AllowAPIServer(service *corev1.Service, endpoints *discoveryv1.EndpointSlice) []networkingv1.NetworkPolicyEgressRule {
	var servicePorts, endpointPorts []networkingv1.NetworkPolicyPort
	for _, port := range service.Spec.Ports {
		servicePorts = append(servicePorts, PolicyPort(port.Port, nil, corev1.ProtocolTCP))
	}
	for _, port := range endpoints.Ports {
		if port.Port != nil {
			endpointPorts = append(endpointPorts, PolicyPort(*port.Port, nil, corev1.ProtocolTCP))
		}
	}
	var addresses []string
	for i := range endpoints.Endpoints {
		addresses = append(addresses, endpoints.Endpoints[i].Addresses...)
	}
	return appendRule(appendRule(nil, service.Spec.ClusterIPs, servicePorts), addresses, endpointPorts)
}

// appendRule adds a rule for the addresses, in order. A rule without addresses or without ports would allow all of them.
func appendRule(rules []networkingv1.NetworkPolicyEgressRule, texts []string, ports []networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyEgressRule {
	var addresses []netip.Addr
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" { // a Service without an address has the text "None"
			addresses = append(addresses, address.Unmap())
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	if len(addresses) == 0 || len(ports) == 0 {
		return rules
	}
	rule := networkingv1.NetworkPolicyEgressRule{Ports: ports}
	for _, address := range addresses[:min(len(addresses), maxAPIServerAddresses)] {
		block := netip.PrefixFrom(address, address.BitLen())
		rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: block.String()}})
	}
	return append(rules, rule)
}
