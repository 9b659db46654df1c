package egressproxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const (
	// HashLength is the length of the hash of the configuration.
	HashLength = 64
	// maxRequestHeader bounds the header of a request. A token has up to a kilobyte.
	maxRequestHeader = 8 << 10
	// configInterval is the time between two reads while the configuration is not the expected one.
	configInterval = 250 * time.Millisecond
	// requestTimeout is the time in which a request must arrive.
	requestTimeout = 10 * time.Second
)

// Unauthenticated connections have the lower limit: see package listener.
var (
	proxyConnections = listener.Limits{Total: 2 * DefaultLimits.Total, Unproven: 256}
	adminConnections = listener.Limits{Total: 64, Unproven: 64}
)

type settings struct {
	config, hash           string
	proxy, health, metrics string
	drain                  time.Duration
}

// Run runs the program until SIGTERM or SIGINT, and then until its tunnels have ended.
func Run(ctx context.Context, args []string, errOut io.Writer) error {
	s := settings{}
	flags := flag.NewFlagSet("yardmaster egress-proxy", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&s.config, "config", "", "File with the configuration.")
	flags.StringVar(&s.hash, "config-hash", "", "SHA-256 hash of the configuration in hexadecimal form. The proxy starts when the file has this content.")
	flags.StringVar(&s.proxy, "bind-address", ":3128", "Address of the proxy.")
	flags.StringVar(&s.health, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz.")
	flags.StringVar(&s.metrics, "metrics-bind-address", ":9464", "Address of /metrics.")
	flags.DurationVar(&s.drain, "drain-timeout", 5*time.Minute, "Time after SIGTERM in which open connections may end.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if extra := flags.Args(); len(extra) > 0 {
		return fmt.Errorf("unexpected argument %q", extra[0])
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return s.run(ctx, slog.New(slog.NewJSONHandler(errOut, nil)))
}

func (s *settings) run(ctx context.Context, log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := &atomic.Bool{}
	stopAdmin, err := s.serveAdmin(registry, ready)
	if err != nil {
		return err
	}
	defer stopAdmin()
	options, err := waitForConfig(ctx, s.config, s.hash, log)
	if err != nil {
		return err
	}
	options.Limits, options.Log, options.Registry = DefaultLimits, log, registry
	proxy := New(options)
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.proxy)
	if err != nil {
		return err
	}
	server := newServer(proxy)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(boundedListener(tcp)) }()
	ready.Store(true)
	log.Info("Started", "namespace", options.Namespace, "runners", len(options.Rules), "address", tcp.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ready.Store(false)
	log.Info("Stopping", "drainTimeout", s.drain.String())
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	_ = tcp.Close() // no further connections; open connections end by themselves
	<-ended         //nolint:errcheck // its listener is closed; until then, Close would close it again, and fail
	proxy.Drain(drain)
	return server.Close()
}

func boundedListener(tcp net.Listener) net.Listener {
	return listener.New(tcp, proxyConnections, func() {})
}

// waitForConfig reads the configuration when its file has the content with this hash: the kubelet may first mount an earlier version.
func waitForConfig(ctx context.Context, path, hash string, log *slog.Logger) (Options, error) {
	ticker := time.NewTicker(configInterval)
	defer ticker.Stop()
	for logged := false; ; logged = true {
		raw, err := os.ReadFile(path)
		if err == nil && (hash == "" || decision.HexDigest(raw, HashLength) == hash) {
			return newOptions(raw)
		}
		if !logged {
			log.Info("Waiting for the configuration", "file", path, "hash", hash, "error", err)
		}
		select {
		case <-ctx.Done():
			return Options{}, fmt.Errorf("stopped while waiting for the configuration with hash %s in %s", hash, path)
		case <-ticker.C:
		}
	}
}

func newOptions(raw []byte) (Options, error) {
	config, rules, err := sessionrunner.ParseConfig(raw)
	if err != nil {
		return Options{}, err
	}
	keys := adminauth.ParsePublicKeys([]byte(config.PublicKeys))
	if len(keys) == 0 {
		return Options{}, errors.New("the configuration has no public key")
	}
	return Options{
		Namespace: config.Namespace, Keys: keys, Rules: rules,
		Network: sessionrunner.Network{ClusterNetworks: config.ClusterNetworks, ProxyNetworks: config.ProxyNetworks},
	}, nil
}

// newServer returns a server with bounds on what a peer can send and occupy.
func newServer(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: handler, Protocols: protocols, MaxHeaderBytes: maxRequestHeader, ConnContext: listener.WithConnection,
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout, IdleTimeout: requestTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // peers cause these errors at will
	}
}

func (s *settings) serveAdmin(registry *prometheus.Registry, ready *atomic.Bool) (stop func(), err error) {
	health := http.NewServeMux()
	health.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	health.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready.Load() {
			w.WriteHeader(http.StatusOK)
			return
		}
		http.Error(w, "the proxy does not accept connections", http.StatusServiceUnavailable)
	})
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	var servers []*http.Server
	stop = func() {
		for _, server := range servers {
			_ = server.Close()
		}
	}
	for address, handler := range map[string]http.Handler{s.health: health, s.metrics: metrics} {
		tcp, err := net.Listen("tcp", address) //nolint:noctx // it listens until the program stops
		if err != nil {
			stop()
			return nil, err
		}
		server := newServer(handler)
		servers = append(servers, server)
		go func() { _ = server.Serve(listener.New(tcp, adminConnections, func() {})) }()
	}
	return stop, nil
}
