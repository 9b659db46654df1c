package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/portforward"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var errForwardedSentinel = errors.New("Redis Sentinels in the cluster name servers that only Pods reach: " + //nolint:staticcheck // a name
	"run kubectl port-forward to the Pod of the master, and set --broker-url=redis://127.0.0.1:PORT")

// forwardToBroker forwards a port through the API server and points the access to it, if the
// broker's address is a Service of the cluster. The returned function stops forwarding.
func (c *clusterConnection) forwardToBroker(ctx context.Context, access *broker.Credentials) (func(), error) {
	// Of several servers, any one can serve all requests.
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

// redirectToLocalPort points the access to a local port. The server's certificate is still
// checked against the original host name.
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

// forwardPort forwards a local port to a port of a Pod, through WebSockets, as kubectl does.
func (c *clusterConnection) forwardPort(ctx context.Context, to *podPort) (local uint16, stop func(), err error) {
	core, err := typedcorev1.NewForConfig(c.restConfig)
	if err != nil {
		return 0, nil, err
	}
	address := core.RESTClient().Post().Resource("pods").Namespace(to.namespace).Name(to.podName).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, c.restConfig)
	if err != nil {
		return 0, nil, err
	}
	stopped, ready, failed, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", to.port)},
		stopped, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	go func() {
		defer close(ended)
		failed <- forwarder.ForwardPorts()
	}()
	stop = func() {
		close(stopped)
		<-ended
	}
	select {
	case <-ready:
	case err := <-failed:
		return 0, nil, err
	case <-ctx.Done():
		close(stopped) // without waiting, because the API server may never answer
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err == nil && len(ports) != 1 {
		err = errors.New("the API server forwarded no port")
	}
	if err != nil {
		stop()
		return 0, nil, err
	}
	return ports[0].Local, stop, nil
}
