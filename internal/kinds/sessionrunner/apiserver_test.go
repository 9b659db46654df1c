package sessionrunner

import (
	"fmt"
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
