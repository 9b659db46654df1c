package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const (
	adminHeaderTimeout  = 5 * time.Second
	adminReadTimeout    = 10 * time.Second
	adminMaxHeaderBytes = 1 << 14
	// defaultAdminShutdownTimeout is the time in which current requests are answered when a worker ends.
	defaultAdminShutdownTimeout = time.Second
	// addressDisabled is the AdminAddress or MetricsAddress that disables the server.
	addressDisabled = "0"
	// maxAdminConnections bounds the open connections of a server. Another connection replaces the oldest connection of the host with the
	// most connections, so that no host excludes the kubelet.
	maxAdminConnections = 256
)

// newServer returns a server with bounds on what peers can occupy. Responses have no time limit, because a preStop hook waits for its
// response until the worker is drained.
func (w *Worker) newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: adminHeaderTimeout, ReadTimeout: adminReadTimeout, MaxHeaderBytes: adminMaxHeaderBytes,
		ConnContext: listener.WithConnection,
		ErrorLog:    slog.NewLogLogger(w.log.Handler(), slog.LevelDebug), // peers cause errors at will
	}
}

// startServers serves the admin API and the metrics. Call stop to end the servers.
func (w *Worker) startServers(ctx context.Context) (stop func(), err error) {
	settings := w.currentSettings()
	stopAdmin, err := w.startServer(ctx, settings.adminAddress, w.AdminHandler())
	if err != nil {
		return nil, err
	}
	if settings.metricsAddress == "" {
		return stopAdmin, nil
	}
	mux := http.NewServeMux()
	mux.Handle(metricsPattern, w.metricsHandler())
	stopMetrics, err := w.startServer(ctx, settings.metricsAddress, mux)
	if err != nil {
		// Another container of the Pod may use the port. Jobs matter more than metrics.
		w.log.Error("Failed to serve metrics; the worker runs without", "error", err)
		return stopAdmin, nil
	}
	return func() { stopMetrics(); stopAdmin() }, nil
}

// startServer serves requests at the address. Call stop to end the server.
func (w *Worker) startServer(ctx context.Context, address string, handler http.Handler) (stop func(), err error) {
	if address == addressDisabled {
		return func() {}, nil
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	limits := listener.Limits{Total: maxAdminConnections, Unproven: maxAdminConnections}
	server := w.newServer(handler)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := server.Serve(listener.New(tcp, limits, func() {})); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("The server of the admin API or of the metrics failed", "address", address, "error", err)
		}
	}()
	return func() {
		// Current requests can still be answered, so that clients see that the worker is drained.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.adminShutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close()
		}
		<-stopped
	}, nil
}
