package sessionrunner

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// maxAPIServerAddresses bounds what a NetworkPolicy allows. No cluster has nearly as many API servers.
const maxAPIServerAddresses = 64

// AllowAPIServer returns the rules that allow connections to the API server: to its Service, and to its endpoints,
// because some network plugins enforce policies before the Service's address is translated, and others after.
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

// appendRule adds a rule for the addresses, in order. Without addresses or without ports it would allow all of them.
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
