package sessionrunner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheAPIServerIsAllowedByItsServiceAndItsEndpoints(t *testing.T) {
	service := func(addresses ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: addresses, Ports: []corev1.ServicePort{{Port: 443}}}}
	}
	slice := func(port *int32, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: port}}}
		for _, address := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		return s
	}
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.0.0.%d", i))
	}
	for name, test := range map[string]struct {
		service   *corev1.Service
		endpoints *discoveryv1.EndpointSlice
		want      string
	}{
		"both":                        {service("10.96.0.1"), slice(new(int32(6443)), "192.0.2.9", "192.0.2.8", "192.0.2.9"), "443: 10.96.0.1/32; 6443: 192.0.2.8/32 192.0.2.9/32"},
		"IPv6":                        {service("10.96.0.1", "fd00::1"), slice(nil), "443: 10.96.0.1/32 fd00::1/128"},
		"unknown":                     {&corev1.Service{}, slice(nil), ""},
		"no address allows none":      {service("None"), slice(new(int32(6443))), ""},
		"no port allows none":         {&corev1.Service{}, slice(nil, "192.0.2.8"), ""},
		"names and zones are ignored": {&corev1.Service{}, slice(new(int32(6443)), "api.example", "fe80::1%eth0"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []string
			for _, rule := range AllowAPIServer(test.service, test.endpoints) {
				var cidrs []string
				for _, peer := range rule.To {
					cidrs = append(cidrs, peer.IPBlock.CIDR)
				}
				rules = append(rules, fmt.Sprintf("%s: %s", rule.Ports[0].Port, strings.Join(cidrs, " ")))
			}
			require.Equal(t, test.want, strings.Join(rules, "; "))
		})
	}
	require.Equal(t, maxAPIServerAddresses, len(AllowAPIServer(&corev1.Service{}, slice(new(int32(1)), many...))[0].To))
}

// The proxy checks addresses itself, and its NetworkPolicy is a second check, so neither must be wider. The profile PublicOnly allows
// what the proxy may reach besides its own networks.
func TestProxyReachesOnlyPublicAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	network := Network{
		ClusterNetworks: []netip.Prefix{prefix("34.0.0.0/8"), prefix("2600::/16")},
		ProxyNetworks:   parsePrefixes("10.9.0.0/16", "fd00::/16", "fd12::/32", "100.64.0.0/10", "169.254.0.0/16", "168.63.129.16/32"),
	}
	contains := func(peers []networkingv1.NetworkPolicyPeer, address netip.Addr) bool {
		return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			isExcepted := slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return prefix(except).Contains(address) })
			return prefix(peer.IPBlock.CIDR).Contains(address) && !isExcepted
		})
	}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2001:4860:4860::8888": true, "::ffff:8.8.8.8": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.0.1": true,
		"10.9.1.2": true, "::ffff:10.9.1.2": true, "fd00::1": true, "fd12::1": true, "100.64.0.1": true, "203.0.113.1": false, "fd20:ce::254": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "127.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false,
		"169.254.169.254": false, "168.63.129.16": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "34.1.2.3": false, "192.0.2.1": false,
		"::": false, "::1": false, "fe80::1": false, "2001:4860:4860::8888%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2600::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::8.8.8.8": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::7f00:1": false, // NAT64
		"2002:7f00:1::": false, "2002:a9fe:a9fe::": false, // 6to4
		"2001::1": false, "2001:db8::1": false, "fec0::1": false, // Teredo, documentation, site-local
	} {
		address := netip.MustParseAddr(text)
		isOfProxy := slices.ContainsFunc(network.ProxyNetworks, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
		byProxy, byPolicy := network.AllowsProxy(address), contains(network.ProxyPeers(), address.Unmap())
		isPublic := contains(network.PublicPeers(), address.Unmap())
		require.True(t, byProxy == want && byPolicy == want && isPublic == (want && !isOfProxy),
			"%s: the proxy allows it: %t, its policy: %t, it is public: %t", text, byProxy, byPolicy, isPublic)
	}
}

func TestNetworksThatArePartsOfOthers(t *testing.T) {
	nested := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/24"} // each contains the next
	for i, inner := range slices.Concat(nested, []string{"11.0.0.0/8", "2001:db8::/32", "x", ""}) {
		for j, outer := range slices.Concat(nested, []string{"11.0.0.0/8", "2001:db8::/32", "x", ""}) {
			isProper := i < len(nested) && j < i
			isEqual := i == j && inner != "x" && inner != ""
			require.True(t, IsSubnet(inner, outer) == isProper, "%q is a proper part of %q: want %t", inner, outer, isProper)
			require.True(t, IsSubnetOrEqual(inner, outer) == (isProper || isEqual), "%q is a part of %q: want %t", inner, outer, isProper || isEqual)
		}
	}
	parse := parsePrefixes("10.1.2.0/24", "10.2.0.0/16", "11.0.0.0/8", "10.0.0.0/8")
	wantBlock := networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.2.0.0/16"}} // the denied part once
	require.Equal(t, wantBlock, *BlockWithout("10.0.0.0/8", []string{"10.1.0.0/16"}, parse).IPBlock)
	for cidr, want := range map[string]bool{
		"8.8.8.0/24": true, "8.8.8.8/32": true, "10.0.0.0/8": false, "8.0.0.0/5": false, "0.0.0.0/0": false, "2001:4860::/32": false, "x": false,
	} {
		require.True(t, IsPublicIPv4(cidr) == want, "%s is public: want %t", cidr, want)
	}
}

func TestNamesAreResolvedByTheDNSOfTheCluster(t *testing.T) {
	for title, row := range map[string]struct {
		network Network
		want    string
	}{
		"by default": {Network{}, "kube-system k8s-app=kube-dns [] UDP 53 TCP 53"},
		"of its own": {
			Network{DNSNamespace: "dns", DNSSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, DNSNetworks: parsePrefixes("169.254.20.10/32"), DNSPort: 5353},
			"dns a=b [169.254.20.10/32] UDP 5353 TCP 5353",
		},
	} {
		rule, blocks := row.network.AllowDNS(), []string{}
		for _, peer := range rule.To[1:] {
			blocks = append(blocks, peer.IPBlock.CIDR)
		}
		got := fmt.Sprintf("%s %s %v", rule.To[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName], metav1.FormatLabelSelector(rule.To[0].PodSelector), blocks)
		for _, port := range rule.Ports {
			got += fmt.Sprintf(" %s %s", *port.Protocol, port.Port)
		}
		require.True(t, got == row.want, "%s: %s, want %s", title, got, row.want)
	}
}
