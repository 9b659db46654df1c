package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const (
	// maxRequestHeader bounds the header of a request: a token, and the headers of a job.
	maxRequestHeader = 48 << 10
	// headerTimeout and bodyTimeout bound the time in which a request must arrive, and idleTimeout the time between two requests.
	headerTimeout = 5 * time.Second
	bodyTimeout   = 15 * time.Second
	idleTimeout   = time.Minute
	// certificateInterval is the time between two attempts to read a missing certificate.
	certificateInterval = time.Second
)

// Connections without a valid token have the lower limit: see package listener.
var (
	apiConnections   = listener.Limits{Total: 1024, Unproven: 256}
	adminConnections = listener.Limits{Total: 64, Unproven: 64}
)

// newServer returns a server with bounds on what a peer can send and occupy.
func newServer(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true) // over HTTP/2, one connection could send many requests at once
	return &http.Server{
		Handler: handler, Protocols: protocols, MaxHeaderBytes: maxRequestHeader, ConnContext: listener.WithConnection,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: bodyTimeout + handleTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // peers cause these errors at will
	}
}

// waitForCertificate returns the TLS configuration once the certificate exists: the Secret may be created after the Pod. It returns
// nil without a directory.
func waitForCertificate(ctx context.Context, directory string, log *slog.Logger) (*tls.Config, error) {
	if directory == "" {
		log.Warn("Serving without TLS: tokens of clients are readable on the network")
		return nil, nil //nolint:nilnil // no TLS
	}
	ticker := time.NewTicker(certificateInterval)
	defer ticker.Stop()
	for logged := false; ; logged = true {
		watcher, err := certwatcher.New(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
		if err == nil {
			go func() { _ = watcher.Start(ctx) }()
			return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: watcher.GetCertificate}, nil
		}
		if !logged {
			log.Info("Waiting for the certificate", "directory", directory, "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // stopped
		case <-ticker.C:
		}
	}
}

// admin serves health and metrics.
type admin struct {
	ready   atomic.Bool
	servers []*http.Server
}

func newAdmin(o Options, registry *prometheus.Registry) (*admin, error) {
	a := &admin{}
	health := http.NewServeMux()
	health.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	health.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.ready.Load() {
			w.WriteHeader(http.StatusOK)
			return
		}
		http.Error(w, "the gateway has no certificate yet, or is stopping", http.StatusServiceUnavailable)
	})
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	for address, handler := range map[string]http.Handler{o.HealthAddress: health, o.MetricsAddress: metrics} {
		tcp, err := net.Listen("tcp", address) //nolint:noctx // it listens until the program stops
		if err != nil {
			a.close()
			return nil, err
		}
		server := newServer(handler)
		a.servers = append(a.servers, server)
		go func() { _ = server.Serve(listener.New(tcp, adminConnections, func() {})) }()
	}
	return a, nil
}

func (a *admin) close() {
	for _, server := range a.servers {
		_ = server.Close()
	}
}
