package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/flagenv"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

// Options are the values of the flags.
type Options struct {
	// Address of the API, HealthAddress of /healthz and /readyz, MetricsAddress of /metrics.
	Address, HealthAddress, MetricsAddress string
	// CertificateDirectory has tls.crt and tls.key, which may change. If empty, the API is served without TLS.
	CertificateDirectory string
	// Audience that tokens must have.
	Audience string
	// MaxBodyBytes bounds the payload of a job.
	MaxBodyBytes int64
	// DrainTimeout is the time after SIGTERM in which requests may end.
	DrainTimeout time.Duration

	// Namespace has the Secrets of the default broker.
	Namespace string
	Broker    brokeraccess.DefaultBroker
	Network   bounded.Options
}

// DefaultAudience is the audience of tokens for the gateway.
const DefaultAudience = "yardmaster-gateway"

// The bounds of --max-body-bytes. NATS accepts a megabyte by default, and at most 64.
const (
	defaultMaxBody = 1 << 20
	largestMaxBody = 8 << 20
)

// ParseFlags reads the flags in args, and other flags from the environment, which has the form of os.Environ: --max-body-bytes from
// YARDMASTER_MAX_BODY_BYTES.
func ParseFlags(args, environment []string, output io.Writer) (Options, error) {
	o := Options{}
	f := flag.NewFlagSet("yardmaster gateway", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&o.Address, "bind-address", ":8443", "Address of the API.")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz.")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":9464", "Address of /metrics.")
	f.StringVar(&o.CertificateDirectory, "certificate-dir", "/run/yardmaster/tls",
		"Directory with tls.crt and tls.key. Changed files are read again. Empty means without TLS: then tokens are readable on the network, unless a proxy in the same Pod encrypts it.")
	f.StringVar(&o.Audience, "audience", DefaultAudience, "Audience that the tokens of clients must be for.")
	f.Int64Var(&o.MaxBodyBytes, "max-body-bytes", defaultMaxBody,
		fmt.Sprintf("Maximum size of a payload, at most %d. A request with many jobs may have %d times as much.", largestMaxBody, manyFactor))
	f.DurationVar(&o.DrainTimeout, "drain-timeout", handleTimeout, "Time after SIGTERM in which requests may end.")
	f.StringVar(&o.Namespace, "operator-namespace", "", "Namespace of the Secrets of the default broker.")
	o.Broker.BindFlags(f)
	brokeraccess.BindNetworkFlags(f, &o.Network)
	if err := f.Parse(args); err != nil {
		return Options{}, err
	}
	if extra := f.Args(); len(extra) > 0 {
		return Options{}, fmt.Errorf("unexpected argument %q", extra[0])
	}
	if err := flagenv.Set(f, environment); err != nil {
		return Options{}, err
	}
	switch {
	case o.Audience == "":
		return Options{}, errors.New("--audience is empty: tokens for the API server would be accepted")
	case o.MaxBodyBytes < 1 || o.MaxBodyBytes > largestMaxBody:
		return Options{}, fmt.Errorf("--max-body-bytes is %d, must be between 1 and %d", o.MaxBodyBytes, largestMaxBody)
	case o.Broker.URLSecret != "" && o.Namespace == "":
		return Options{}, errors.New("--broker-url-secret needs --operator-namespace")
	}
	return o, o.Broker.Validate()
}

// Main runs the program until SIGTERM or SIGINT, and then until its requests have ended.
func Main(args, environment []string, output io.Writer) error {
	o, err := ParseFlags(args, environment, output)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewJSONHandler(output, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	return Run(ctx, config, o, log)
}

// Run runs the gateway until ctx ends.
func Run(ctx context.Context, config *rest.Config, o Options, log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h, brokers, err := newHandler(config, o, registry, log)
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = brokers.Start(background) }()
	defer func() { stop(); <-ended }()
	admin, err := newAdmin(o, registry)
	if err != nil {
		return err
	}
	defer admin.close()
	encryption, err := waitForCertificate(ctx, o.CertificateDirectory, log)
	if err != nil || ctx.Err() != nil {
		return err
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return err
	}
	bounded := net.Listener(listener.New(tcp, apiConnections, h.metrics.refused.Inc))
	if encryption != nil {
		bounded = tls.NewListener(bounded, encryption)
	}
	log.Info("Started", "address", tcp.Addr().String(), "audience", o.Audience)
	admin.ready.Store(true)
	return serveUntil(ctx, newServer(h.routes()), bounded, func() { admin.ready.Store(false) }, o.DrainTimeout)
}

// newHandler returns the API and its connections.
func newHandler(config *rest.Config, o Options, registry *prometheus.Registry, log *slog.Logger) (*handler, *brokerconn.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // shares limit what clients can cause
	config.Wrap(kube.IgnoreRetryAfter)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	brokers := brokerconn.NewManager(c, brokerconn.Options{
		DefaultBroker: o.Broker.Reference(), DefaultNamespace: o.Namespace, Dialer: bounded.NewDialer(o.Network),
	})
	if err := registry.Register(brokers); err != nil {
		return nil, nil, err
	}
	m := newMetrics(registry)
	return &handler{
		reviewer: newReviewer(c, o.Audience, m), queues: newQueues(c, brokers), shares: newRequestShares(o.MaxBodyBytes),
		metrics: m, log: log, maxBody: o.MaxBodyBytes, now: time.Now,
	}, brokers, nil
}

// serveUntil serves until ctx ends, and then waits for running requests.
func serveUntil(ctx context.Context, server *http.Server, tcp net.Listener, leaving func(), drain time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(tcp) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	leaving()
	timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(timeout); err != nil {
		return server.Close() // peers that are still sending
	}
	return nil
}
