package sessionrunner

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
			if got := strings.Join(rules, "; "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := len(AllowAPIServer(&corev1.Service{}, slice(new(int32(1)), many...))[0].To); got != maxAPIServerAddresses {
		t.Errorf("%d addresses, want %d", got, maxAPIServerAddresses)
	}
}

func TestProxyReachesOnlyPublicAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	network := Network{ClusterNetworks: []netip.Prefix{prefix("34.0.0.0/8"), prefix("2600::/16")}, ProxyNetworks: []netip.Prefix{prefix("10.9.0.0/16"), prefix("fd12::/32"), prefix("100.64.0.0/10"), prefix("169.254.0.0/16")}}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2001:4860:4860::8888": true, "::ffff:8.8.8.8": true,
		"10.9.1.2": true, "::ffff:10.9.1.2": true, "fd12::1": true, "100.64.0.1": true,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "127.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false,
		"169.254.169.254": false, "168.63.129.16": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "34.1.2.3": false, "192.0.2.1": false,
		"::": false, "::1": false, "fe80::1": false, "2001:4860:4860::8888%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2600::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::8.8.8.8": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::7f00:1": false, // NAT64
		"2002:7f00:1::": false, "2002:a9fe:a9fe::": false, // 6to4
		"2001::1": false, "2001:db8::1": false, "fec0::1": false, // Teredo, documentation, site-local
	} {
		if got := network.AllowsProxy(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is allowed: %t", text, got)
		}
	}
}
