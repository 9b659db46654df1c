package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	adminHeaderTimeout   = 5 * time.Second
	adminReadTimeout     = 10 * time.Second
	adminMaxHeaderBytes  = 1 << 14
	adminShutdownTimeout = time.Second
	// adminDisabled is the AdminAddress that disables the admin API.
	adminDisabled = "0"
)

// AdminHandler returns the handler of the admin API. It serves:
//
//	GET  /livez    200, or 503 if every running job is overdue, so that only a restart helps
//	GET  /readyz   200 while the worker takes jobs from all of its queues, else 503
//	POST /drain    drains the worker; 202
//	POST /resume   makes a drained worker take jobs again; 200, or 409 if it is shutting down
//	GET  /prestop  drains the worker and ends its process; 200 once it is drained, or 503 at
//	               the end of the drain timeout
//	GET  /stats    the Stats as JSON
//	GET  /metrics  metrics for Prometheus
//
// All responses except those of /livez and /metrics contain the Stats.
func (w *Worker) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(response http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if s := w.Stats(); s.Overdue >= s.Capacity {
			status = http.StatusServiceUnavailable
		}
		response.WriteHeader(status)
	})
	mux.HandleFunc("GET /readyz", func(response http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if s := w.Stats(); !s.Attached || s.State != StateRunning {
			status = http.StatusServiceUnavailable
		}
		w.writeStats(response, status)
	})
	mux.HandleFunc("POST /drain", func(response http.ResponseWriter, _ *http.Request) {
		w.Drain()
		w.writeStats(response, http.StatusAccepted)
	})
	mux.HandleFunc("POST /resume", func(response http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if !w.Resume() {
			status = http.StatusConflict
		}
		w.writeStats(response, status)
	})
	mux.HandleFunc("GET /prestop", w.handlePreStop)
	mux.HandleFunc("GET /stats", func(response http.ResponseWriter, _ *http.Request) { w.writeStats(response, http.StatusOK) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// handlePreStop serves the preStop hook of a Pod. The hook can only send GET requests, and
// ends when it receives the response. The worker shuts down even if the client disconnects.
func (w *Worker) handlePreStop(response http.ResponseWriter, request *http.Request) {
	// Without this, the server would cancel the request's context at its read deadline.
	err := http.NewResponseController(response).SetReadDeadline(time.Time{})
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		w.log.Debug("Failed to disable the read deadline; the preStop request may end early", "error", err)
	}
	status := http.StatusOK
	if !w.waitUntilDrained(request.Context(), w.beginShutdown()) {
		status = http.StatusServiceUnavailable
	}
	w.writeStats(response, status)
}

func (w *Worker) writeStats(response http.ResponseWriter, status int) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	if err := json.NewEncoder(response).Encode(w.Stats()); err != nil {
		w.log.Debug("Failed to write a response of the admin API", "error", err)
	}
}

func (w *Worker) newAdminServer() *http.Server {
	return &http.Server{
		Handler: w.AdminHandler(), ReadHeaderTimeout: adminHeaderTimeout, ReadTimeout: adminReadTimeout, MaxHeaderBytes: adminMaxHeaderBytes,
	}
}

// startAdminServer serves the admin API at the address. Call stop to end it.
func (w *Worker) startAdminServer(ctx context.Context, address string) (stop func(), err error) {
	if address == adminDisabled {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := w.newAdminServer()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("The admin API failed", "error", err)
		}
	}()
	return func() {
		// Current requests can still be answered, so that clients see that the worker is
		// drained.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminShutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close()
		}
		<-stopped
	}, nil
}
