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

// endpoint is a port of a Pod.
type endpoint struct {
	namespace, pod string
	port           int32
}

// inCluster is what a host's name means in a cluster: a Service, or one Pod of it.
type inCluster struct{ pod, service, namespace string }

// inClusterOf reads a host's name as a Pod of the namespace would have it resolved. Of one
// that has two parts it cannot be known: it is a Service if there is such a one.
func inClusterOf(host, namespace string) (inCluster, bool) {
	if net.ParseIP(host) != nil {
		return inCluster{}, false
	}
	switch parts := strings.Split(strings.TrimSuffix(host, "."), "."); {
	case len(parts) == 1:
		return inCluster{service: parts[0], namespace: namespace}, true
	case len(parts) == 2, parts[2] == "svc":
		return inCluster{service: parts[0], namespace: parts[1]}, true
	case len(parts) > 3 && parts[3] == "svc":
		return inCluster{pod: parts[0], service: parts[1], namespace: parts[2]}, true
	default:
		return inCluster{}, false
	}
}

// defaultPorts of what a broker's URL can begin with.
var defaultPorts = map[string]int32{"nats": 4222, "tls": 4222, "ws": 80, "wss": 443, "redis": 6379, "rediss": 6379}

// errNoPort does not repeat the URL: there may be a password in it.
var errNoPort = errors.New("the port in the broker's URL is none")

func portOf(address *url.URL) (int32, error) {
	if address.Port() == "" {
		return defaultPorts[address.Scheme], nil
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil || port < 1 || port > 65535 {
		return 0, errNoPort
	}
	return int32(port), nil
}

// behind finds a ready Pod behind the host of a broker's URL; nil: it is no Service of this
// cluster.
func (c *connection) behind(ctx context.Context, address *url.URL) (*endpoint, error) {
	host, may := inClusterOf(address.Hostname(), c.namespace)
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
	port, err := portOf(address)
	if err != nil {
		return nil, err
	}
	var slicesOf discoveryv1.EndpointSliceList
	err = c.List(ctx, &slicesOf, client.InNamespace(host.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: host.service})
	if err != nil {
		return nil, err
	}
	name := portName(service, port)
	for i := range slicesOf.Items {
		slice := &slicesOf.Items[i]
		if found := readyIn(slice, host.pod); found != "" {
			return &endpoint{host.namespace, found, targetPort(slice, name, port)}, nil
		}
	}
	return nil, fmt.Errorf("the broker's Service %s/%s has no ready Pod", host.namespace, host.service)
}

// portName is what the Service calls its port of that number.
func portName(service *corev1.Service, port int32) *string {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return nil
	}
	return &service.Spec.Ports[i].Name
}

// targetPort is the Pod's port for the Service's. One that the Service does not have, a
// headless Service lets through all the same.
func targetPort(slice *discoveryv1.EndpointSlice, name *string, port int32) int32 {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if name != nil && p.Port != nil && (p.Name == nil && *name == "" || p.Name != nil && *p.Name == *name) {
			return *p.Port
		}
	}
	return port
}

// readyIn is the name of a ready Pod; if one is named, of no other.
func readyIn(slice *discoveryv1.EndpointSlice, pod string) string {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		if ready && e.TargetRef != nil && e.TargetRef.Kind == "Pod" && (pod == "" || e.TargetRef.Name == pod) {
			return e.TargetRef.Name
		}
	}
	return ""
}
