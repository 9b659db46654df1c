package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podPort is a port of a Pod.
type podPort struct {
	namespace, podName string
	port               int32
}

// serviceHost is what a host's name means in a cluster: a Service, or one Pod of it.
type serviceHost struct{ pod, service, namespace string }

// parseServiceHost reads a host's name as a Pod of the namespace would have it resolved. Of one
// that has two parts it cannot be known: it is a Service if there is such a one.
func parseServiceHost(host, namespace string) (serviceHost, bool) {
	if net.ParseIP(host) != nil {
		return serviceHost{}, false
	}
	switch parts := strings.Split(strings.TrimSuffix(host, "."), "."); {
	case len(parts) == 1:
		return serviceHost{service: parts[0], namespace: namespace}, true
	case len(parts) == 2, parts[2] == "svc":
		return serviceHost{service: parts[0], namespace: parts[1]}, true
	case len(parts) > 3 && parts[3] == "svc":
		return serviceHost{pod: parts[0], service: parts[1], namespace: parts[2]}, true
	default:
		return serviceHost{}, false
	}
}

// defaultBrokerPorts of what a broker's URL can begin with.
var defaultBrokerPorts = map[string]int32{"nats": 4222, "tls": 4222, "ws": 80, "wss": 443, "redis": 6379, "rediss": 6379}

// errInvalidBrokerPort does not repeat the URL: there may be a password in it.
var errInvalidBrokerPort = errors.New("the port in the broker's URL is none")

func brokerPort(address *url.URL) (int32, error) {
	if address.Port() == "" {
		return defaultBrokerPorts[address.Scheme], nil
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil || port < 1 || port > 65535 {
		return 0, errInvalidBrokerPort
	}
	return int32(port), nil
}

// findReadyPod finds a ready Pod behind the host of a broker's URL; nil: it is no Service of this
// cluster.
func (c *clusterConnection) findReadyPod(ctx context.Context, address *url.URL) (*podPort, error) {
	host, may := parseServiceHost(address.Hostname(), c.namespace)
	if !may {
		return nil, nil //nolint:nilnil // as it says
	}
	service := &corev1.Service{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.namespace, Name: host.service}, service)
	switch {
	case apierrors.IsNotFound(err) || err == nil && service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, nil //nolint:nilnil // as it says
	case err != nil:
		return nil, err
	}
	port, err := brokerPort(address)
	if err != nil {
		return nil, err
	}
	var slicesOf discoveryv1.EndpointSliceList
	err = c.List(ctx, &slicesOf, client.InNamespace(host.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: host.service})
	if err != nil {
		return nil, err
	}
	name := servicePortName(service, port)
	for i := range slicesOf.Items {
		slice := &slicesOf.Items[i]
		if found := readyPodName(slice, host.pod); found != "" {
			return &podPort{host.namespace, found, podTargetPort(slice, name, port)}, nil
		}
	}
	return nil, fmt.Errorf("the broker's Service %s/%s has no ready Pod", host.namespace, host.service)
}

// servicePortName is what the Service calls its port of that number.
func servicePortName(service *corev1.Service, port int32) *string {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return nil
	}
	return &service.Spec.Ports[i].Name
}

// podTargetPort is the Pod's port for the Service's. One that the Service does not have, a
// headless Service lets through all the same.
func podTargetPort(slice *discoveryv1.EndpointSlice, name *string, port int32) int32 {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if name != nil && p.Port != nil && (p.Name == nil && *name == "" || p.Name != nil && *p.Name == *name) {
			return *p.Port
		}
	}
	return port
}

// readyPodName is the name of a ready Pod; if one is named, of no other.
func readyPodName(slice *discoveryv1.EndpointSlice, pod string) string {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		if ready && e.TargetRef != nil && e.TargetRef.Kind == "Pod" && (pod == "" || e.TargetRef.Name == pod) {
			return e.TargetRef.Name
		}
	}
	return ""
}
