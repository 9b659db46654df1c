package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
)

const brokerDialTimeout = 15 * time.Second

type connectedQueue struct {
	*v1alpha1.Queue
	broker.Engine

	brokerName     string
	stopForwarding func()
}

// runOnBroker runs a function with a connection to the broker of the Queue. Its errors name the Queue.
func runOnBroker(ctx context.Context, cluster *clusterConnection, object *v1alpha1.Queue, address string, run func(ctx context.Context, q *connectedQueue) error) error {
	q, err := connectToBroker(ctx, cluster, object, address)
	if err == nil {
		defer q.stopForwarding()
		defer q.Disconnect()
		err = run(ctx, q)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", queueKind.qualifiedName(object), err)
	}
	return nil
}

// connectToBroker connects to the broker of the Queue with the user's permissions. An empty address selects the address in the
// Queue's Secret.
func connectToBroker(ctx context.Context, cluster *clusterConnection, q *v1alpha1.Queue, address string) (*connectedQueue, error) {
	switch {
	case q.Status.Name == "":
		return nil, fmt.Errorf("the operator has not created the queue of Queue %s on its broker yet", q.Name)
	case queue.HasOtherOwner(q):
		return nil, fmt.Errorf("another Queue owns the queue %s on the broker and its dead letters", q.Status.Name)
	}
	reference, err := resolveBroker(ctx, cluster, q)
	if err != nil {
		return nil, err
	}
	access, err := brokerAccess(ctx, cluster, reference, address)
	if err != nil {
		return nil, err
	}
	engine := detectEngine(q, reference, access.URL)
	if !dial.IsSupported(engine) {
		return nil, fmt.Errorf("this version of the plugin does not support the engine %s", engine)
	}
	ctx, cancel := context.WithTimeout(ctx, brokerDialTimeout)
	defer cancel()
	stopForwarding := func() {}
	if address == "" {
		if stopForwarding, err = cluster.forwardToBroker(ctx, access); err != nil {
			return nil, err
		}
	}
	access.Dial = bounded.NewDialer(bounded.Options{AllowLocal: true}).For(cluster.namespace) // a forwarded port is local
	connected, err := dial.Connect(ctx, engine, *access)
	if err != nil {
		stopForwarding()
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	return &connectedQueue{q, connected, q.Status.Name, stopForwarding}, nil
}

// detectEngine returns the engine of the broker reference, or else of the Queue's status, or else of the scheme of the URL.
func detectEngine(q *v1alpha1.Queue, b *v1alpha1.Broker, address string) dial.EngineName {
	if b != nil {
		return dial.EngineName(b.Engine)
	}
	return cmp.Or(dial.EngineName(q.Status.Engine), dial.EngineOf(address))
}

// resolveBroker returns the broker of a Queue as the operator resolves it: from the Queue, or from a Policy; nil for the operator's
// default broker.
func resolveBroker(ctx context.Context, c *clusterConnection, q *v1alpha1.Queue) (*v1alpha1.Broker, error) {
	if q.Spec.Broker != nil {
		return q.Spec.Broker, nil
	}
	var policies v1alpha1.PolicyList
	if err := c.List(ctx, &policies, client.InNamespace(q.Namespace)); err != nil {
		return nil, err
	}
	set, err := policy.NewSet(policies.Items)
	if err != nil {
		return nil, err
	}
	selected := set.Select(q.Labels)
	return policy.EffectiveQueue(q, &selected).Broker, nil
}

var errOperatorBroker = errors.New("it uses the operator's default broker, whose address users cannot read: set --broker-url")

// brokerAccess reads the broker's Secrets. A given address replaces their address.
func brokerAccess(ctx context.Context, c *clusterConnection, b *v1alpha1.Broker, address string) (*broker.Credentials, error) {
	if b == nil {
		if address == "" {
			return nil, errOperatorBroker
		}
		return &broker.Credentials{URL: address}, nil
	}
	access, err := brokeraccess.ReadCredentials(ctx, callerErrorReader{c}, brokeraccess.KeyOf(c.namespace, b))
	if err != nil {
		return nil, err
	}
	if address != "" {
		access.URL, access.Sentinel = address, nil // it is the address of the server itself
	}
	return access, nil
}

// callerErrorReader hides the type of permission errors. Otherwise package brokeraccess would describe them as missing permissions of
// the operator.
type callerErrorReader struct{ client.Reader }

// Get implements client.Reader.
func (w callerErrorReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, object, options...)
	if isPermissionError(err) {
		return errors.New(err.Error())
	}
	return err
}

var errForwardedSentinel = errors.New("Redis Sentinels in the cluster name servers that only Pods reach: " + //nolint:staticcheck // a name
	"run kubectl port-forward to the Pod of the master, and set --broker-url=redis://127.0.0.1:PORT")

// forwardToBroker forwards a port through the API server and points the access to it, if the broker's address is a Service of the
// cluster. The returned function stops forwarding.
func (c *clusterConnection) forwardToBroker(ctx context.Context, access *broker.Credentials) (func(), error) {
	// Each of several servers can serve all requests.
	first, _, _ := strings.Cut(access.URL, ",")
	if first = strings.TrimSpace(first); !strings.Contains(first, "://") {
		first = "nats://" + first
	}
	address, err := url.Parse(first)
	if err != nil {
		return func() {}, nil //nolint:nilerr // the engine reports the invalid URL without its password
	}
	behind, err := c.findReadyPod(ctx, address)
	switch {
	case err != nil || behind == nil:
		return func() {}, err
	case access.Sentinel != nil:
		return nil, errForwardedSentinel
	}
	local, stop, err := c.forwardPort(ctx, behind)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port to the broker's Pod %s/%s: %w", behind.namespace, behind.podName, err)
	}
	redirectToLocalPort(access, address, local)
	return stop, nil
}

// redirectToLocalPort points the access to a local port. The server's certificate is still checked against the original host name.
func redirectToLocalPort(access *broker.Credentials, address *url.URL, local uint16) {
	secure := slices.Contains([]string{"tls", "rediss"}, address.Scheme)
	if access.TLS != nil {
		tls := *access.TLS
		tls.ServerName = address.Hostname()
		access.TLS = &tls
	} else if secure {
		access.TLS = &broker.TLS{ServerName: address.Hostname()}
	}
	redirected := *address
	redirected.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local)))
	access.URL = redirected.String()
}

// serviceHost is a host name of the cluster: a Service, or one Pod of a headless Service.
type serviceHost struct{ pod, service, namespace string }

// parseServiceHost parses a host name as a Pod in the namespace would resolve it. A name with two parts is ambiguous: the caller has
// to check whether the Service exists.
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

// defaultBrokerPorts are the ports of URLs without a port, by scheme.
var defaultBrokerPorts = map[string]int32{"nats": 4222, "tls": 4222, "redis": 6379, "rediss": 6379}

// errInvalidBrokerPort does not contain the URL, which can contain a password.
var errInvalidBrokerPort = errors.New("the broker's URL has an invalid port")

// findReadyPod returns a ready Pod behind the host of a broker's URL; nil if the host is not a Service of this cluster.
func (c *clusterConnection) findReadyPod(ctx context.Context, address *url.URL) (*podPort, error) {
	host, isPossible := parseServiceHost(address.Hostname(), c.namespace)
	if !isPossible {
		return nil, nil //nolint:nilnil // nil means that there is no Service
	}
	service := &corev1.Service{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.namespace, Name: host.service}, service)
	switch {
	case apierrors.IsNotFound(err), err == nil && service.Spec.Type == corev1.ServiceTypeExternalName,
		apierrors.IsForbidden(err) && !strings.Contains(address.Hostname(), ".svc"): // a host such as example.com
		return nil, nil //nolint:nilnil // nil means that there is no Service
	case err != nil:
		return nil, err
	}
	port := defaultBrokerPorts[address.Scheme]
	if text := address.Port(); text != "" {
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil || number == 0 {
			return nil, errInvalidBrokerPort
		}
		port = int32(number)
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

// podTargetPort returns the Pod's port behind a port of the Service. For a port that the Service does not define it returns the same
// number, as a headless Service would.
func podTargetPort(slice *discoveryv1.EndpointSlice, name *string, port int32) int32 {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if name != nil && p.Port != nil && (p.Name == nil && *name == "" || p.Name != nil && *p.Name == *name) {
			return *p.Port
		}
	}
	return port
}

// readyPodName returns the name of a ready Pod, or of pod if it is set and ready; empty without a ready Pod.
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
