package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
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

// serviceHost is a host name of the cluster: a Service, or one Pod of a headless Service.
type serviceHost struct{ pod, service, namespace string }

// parseServiceHost parses a host name as a Pod in the namespace would resolve it. A name with
// two parts is ambiguous: the caller has to check whether the Service exists.
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

// defaultBrokerPorts are the ports of URLs without one, by scheme.
var defaultBrokerPorts = map[string]int32{"nats": 4222, "tls": 4222, "redis": 6379, "rediss": 6379}

// errInvalidBrokerPort does not contain the URL, which can contain a password.
var errInvalidBrokerPort = errors.New("the broker's URL has an invalid port")

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

// findReadyPod returns a ready Pod behind the host of a broker's URL, or nil if the host is not
// a Service of this cluster.
func (c *clusterConnection) findReadyPod(ctx context.Context, address *url.URL) (*podPort, error) {
	host, isPossible := parseServiceHost(address.Hostname(), c.namespace)
	if !isPossible {
		return nil, nil //nolint:nilnil // nil means that there is no Service
	}
	service := &corev1.Service{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.namespace, Name: host.service}, service)
	switch {
	case apierrors.IsNotFound(err) || err == nil && service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, nil //nolint:nilnil // nil means that there is no Service
	case err != nil:
		return nil, err
	}
	port, err := brokerPort(address)
	if err != nil {
		return nil, err
	}
	var endpointSlices discoveryv1.EndpointSliceList
	err = c.List(ctx, &endpointSlices, client.InNamespace(host.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: host.service})
	if err != nil {
		return nil, err
	}
	var name *string
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; p.Port == port {
			name = &p.Name
			break
		}
	}
	for i := range endpointSlices.Items {
		slice := &endpointSlices.Items[i]
		if found := readyPodName(slice, host.pod); found != "" {
			return &podPort{host.namespace, found, podTargetPort(slice, name, port)}, nil
		}
	}
	return nil, fmt.Errorf("the broker's Service %s/%s has no ready Pod", host.namespace, host.service)
}

// podTargetPort returns the Pod's port behind a port of the Service. For a port that the
// Service does not define it returns the same number, as a headless Service would.
func podTargetPort(slice *discoveryv1.EndpointSlice, name *string, port int32) int32 {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if name != nil && p.Port != nil && (p.Name == nil && *name == "" || p.Name != nil && *p.Name == *name) {
			return *p.Port
		}
	}
	return port
}

// readyPodName returns the name of a ready Pod, or "". A non-empty pod restricts the search to
// that Pod.
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
