package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

// Any Pod can connect to the ports of health and metrics, and of the webhook. The servers of controller-runtime do not limit
// connections, so these servers replace them.
const (
	// maxHealthConnections is large, because the kubelet opens a connection for each probe, which must be served before others
	// replace it.
	maxHealthConnections = 256
	// maxMetricsConnections are for connections with TLS, which occupy more memory.
	maxMetricsConnections, maxUnprovenMetricsConnections = 96, 64
	// maxMetricsRequests bounds concurrent requests, each of which may cost a request to the API server, and a page of metrics.
	// Others wait, at most for metricsTimeout.
	maxMetricsRequests = 2
	metricsTimeout     = 10 * time.Second
	// maxRequestHeader bounds the header of a request. A token has about a kilobyte.
	maxRequestHeader = 16 << 10
	// disabledAddress is the address of a server that is not started.
	disabledAddress = "0"
)

type probes struct{ live, ready healthz.Handler }

func newProbes() *probes {
	return &probes{
		live:  healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}},
		ready: healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping, "watches": informer.CheckAccess}},
	}
}

// serve serves the probes. All checks must have been added.
func (p *probes) serve(mgr ctrl.Manager, address string) error {
	mux := http.NewServeMux()
	for path, handler := range map[string]http.Handler{"/healthz": &p.live, "/readyz": &p.ready} {
		mux.Handle(path, http.StripPrefix(path, handler))
		mux.Handle(path+"/", http.StripPrefix(path, handler)) // single checks
	}
	return addServer(mgr, "health", address, oneRequest(mux), listener.Limits{Total: maxHealthConnections, Unproven: maxHealthConnections}, nil)
}

func serveMetrics(mgr ctrl.Manager, o MetricsOptions) error {
	if o.Address == disabledAddress {
		return nil
	}
	handler := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	var encryption *tls.Config
	if o.Secure {
		authorized, err := authorizedOnly(mgr, handler)
		if err != nil {
			return err
		}
		if encryption, err = selfSigned(); err != nil {
			return err
		}
		handler = authorized
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", limitRequests(handler, maxMetricsRequests, metricsTimeout))
	return addServer(mgr, "metrics", o.Address, oneRequest(mux), listener.Limits{Total: maxMetricsConnections, Unproven: maxUnprovenMetricsConnections}, encryption)
}

// authorizedOnly asks the API server who sends a request, and whether the sender is authorized. It logs no refusals, because any Pod
// can cause them.
func authorizedOnly(mgr ctrl.Manager, handler http.Handler) (http.Handler, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("preparing the authorization of readers of metrics: %w", err)
	}
	return filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listener.Prove(r.Context())
		w.Header().Del(connectionHeader)
		handler.ServeHTTP(w, r)
	}))
}

// selfSigned returns the configuration of a server with a new certificate. Readers of metrics authenticate with a token, and do not
// verify the certificate.
func selfSigned() (*tls.Config, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of the metrics server: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}, nil
}

const connectionHeader = "Connection"

// oneRequest closes connections after a response, unless the handler deletes the header. So each request costs a peer as much as the
// operator, and bodies are not read. The kubelet opens a connection for each probe anyway.
func oneRequest(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(connectionHeader, "close")
		handler.ServeHTTP(w, r)
	})
}

// limitRequests limits the number of concurrent requests. Others wait, and fail after the timeout.
func limitRequests(handler http.Handler, limit int, timeout time.Duration) http.Handler {
	slots := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			handler.ServeHTTP(w, r.WithContext(ctx))
		case <-ctx.Done():
			http.Error(w, "the operator is answering too many requests: try again", http.StatusServiceUnavailable)
		}
	})
}

// addServer adds a server to the manager, which starts it before the cache.
func addServer(mgr ctrl.Manager, name, address string, handler http.Handler, connections listener.Limits, encryption *tls.Config) error {
	if address == disabledAddress {
		return nil
	}
	server, err := newServer(name, address, handler, connections, encryption)
	if err != nil {
		return err
	}
	return mgr.Add(server)
}

// newServer returns a server that listens, with bounds on what peers can occupy.
func newServer(name, address string, handler http.Handler, connections listener.Limits, encryption *tls.Config) (*ctrlmanager.Server, error) {
	tcp, err := net.Listen("tcp", address) //nolint:noctx // it listens until the manager stops
	if err != nil {
		return nil, fmt.Errorf("listening for requests of %s: %w", name, err)
	}
	bounded := net.Listener(listener.New(tcp, connections, func() {}))
	if encryption != nil {
		bounded = tls.NewListener(bounded, encryption)
	}
	return &ctrlmanager.Server{
		Name: name, Server: newHTTPServer(handler), Listener: bounded,
		// Peers that are still sending do not delay the end of the process.
		ShutdownTimeout: new(time.Second),
	}, nil
}

func newHTTPServer(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true) // over HTTP/2, one connection could send many requests at once
	return &http.Server{
		Handler: handler, Protocols: protocols, MaxHeaderBytes: maxRequestHeader, ConnContext: listener.WithConnection,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 2 * metricsTimeout, IdleTimeout: 2 * time.Minute,
		// Peers cause these errors at will, for example with failed handshakes.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(ctrl.Log.WithName("server")), slog.LevelDebug),
	}
}
