// Package webhook serves admission webhooks to the API server, and to nobody else as far as possible.
//
// Every peer may be hostile: any Pod of the cluster can connect. The memory that a request can occupy is therefore bounded before the
// request is read, and a request that lacks the secret path segment is refused before its body is read. The package does not decide
// the content of a review.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

var log = ctrl.Log.WithName("webhook")

// Options configure a Server.
type Options struct {
	Port int
	// Directory has an authority and PathFile, or a certificate and perhaps PathFile. The server waits until they exist, and applies
	// changes within a second.
	Directory string
	// Hosts are the DNS names of certificates that the authority issues.
	Hosts []string
	// ClientCAFile has the authorities that sign client certificates. If empty, callers need no certificate.
	ClientCAFile string
}

// limits bound what peers can occupy.
type limits struct {
	// connections are proven once the peer has sent a valid path.
	connections listener.Limits
	// header and body bound the time to read them; idle bounds the time between two requests.
	header, body, idle time.Duration
	// review is the longest time that a review can take, including the wait for memory.
	review time.Duration
	// leave is the time between the request to stop and the end of the listener.
	leave time.Duration
}

var defaultLimits = limits{
	connections: listener.Limits{Total: 512, Unproven: 128}, // each may occupy 40 KiB
	header:      5 * time.Second,
	body:        15 * time.Second,
	// Longer than the 90 s after which the API server closes an idle connection. A server that closes first may do so while a request
	// is on its way.
	idle:   3 * time.Minute,
	review: 10 * time.Second,
	leave:  time.Second,
}

// maxHeaderBytes bounds the header of a request. The API server's header has a few hundred bytes.
const maxHeaderBytes = 16 << 10

// Server is a webhook server with bounds. It implements controller-runtime's webhook.Server.
type Server struct {
	webhook.Server // registers webhooks, with metrics; it is never started

	port     int
	limits   limits
	mux      *http.ServeMux
	files    *credentialFiles
	reading  budget
	decoding budget
	serving  atomic.Bool
	leaving  atomic.Bool
}

// New returns a Server. It serves after Start.
func New(o Options) *Server {
	mux := http.NewServeMux()
	return &Server{
		Server:   webhook.NewServer(webhook.Options{WebhookMux: mux}),
		port:     o.Port,
		limits:   defaultLimits,
		mux:      mux,
		files:    &credentialFiles{directory: o.Directory, clientCA: o.ClientCAFile, hosts: o.Hosts},
		reading:  newBudget(smallReviewBytes, 2<<20, 6<<20),
		decoding: newBudget(smallReviewMemory, 24<<20, maxReviewMemory),
	}
}

// ValidatingPath returns the path of a validating webhook, by its name in the configuration. The API server sends it after a path
// segment of PathFile.
func ValidatingPath(webhookName string) string { return "/validate/" + webhookName }

// MutatingPath returns the path of a mutating webhook, as ValidatingPath does.
func MutatingPath(webhookName string) string { return "/mutate/" + webhookName }

// Start waits for the certificate and then serves until a second after ctx ends.
func (s *Server) Start(ctx context.Context) error {
	const pollInterval = 50 * time.Millisecond
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		_, err := s.files.current(time.Now())
		return err == nil, nil
	}); err != nil {
		return nil //nolint:nilerr // stopped before the certificate existed
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("listening for webhook calls: %w", err)
	}
	return s.serve(ctx, tcp)
}

func (s *Server) serve(ctx context.Context, tcp net.Listener) error {
	server := s.httpServer()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		s.leave()
		running, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.review)
		defer cancel()
		if err := server.Shutdown(running); err != nil { // it waits until running reviews have ended
			_ = server.Close() // peers that are still sending
		}
	}()
	log.Info("Serving webhooks", "address", tcp.Addr().String())
	s.serving.Store(true)
	defer s.serving.Store(false)
	bounded := listener.New(tcp, s.limits.connections, refused.WithLabelValues(reasonConnections).Inc)
	err := server.Serve(tls.NewListener(bounded, s.files.tlsConfig()))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	<-closed
	return nil
}

// leave lets clients change to another replica. A client does not repeat a request that was on its way when the server closed an idle
// connection, so connections in use are closed with a response instead.
func (s *Server) leave() {
	s.leaving.Store(true)
	time.Sleep(s.limits.leave)
}

func (s *Server) httpServer() *http.Server {
	protocols := &http.Protocols{}
	// Over HTTP/2, one connection could send many requests at once.
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: s.limits.header,
		ReadTimeout:       s.limits.body,
		WriteTimeout:      s.limits.body,
		IdleTimeout:       s.limits.idle,
		ConnContext:       listener.WithConnection,
		// Peers cause these errors at will, for example with failed handshakes.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelDebug),
	}
}

// StartedChecker returns a check that succeeds while the server accepts connections. It opens no connection: a peer that occupies all
// connections must not make the Pod unready.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.serving.Load() {
			return errors.New("the webhook server waits for its certificate")
		}
		return nil
	}
}
