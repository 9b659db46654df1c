package worker

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

const (
	metricsPattern = "GET /metrics"
	// maxMetricsRequests bounds the pages of metrics that are written at a time.
	maxMetricsRequests = 4
)

// AdminHandler returns the handler of the admin API. It serves:
//
//	GET  /livez    200, or 503 if each slot has an overdue job, so that only a restart helps
//	GET  /readyz   200 while the worker takes jobs from all of its queues, else 503
//	POST /drain    drains the worker; 202
//	POST /resume   makes a drained worker take jobs again; 200, or 409 if it is shutting down
//	GET  /prestop  drains the worker and ends its process; 200 once it is drained, or 503 at
//	               the end of the drain timeout
//	GET  /stats    the Stats as JSON
//	GET  /metrics  metrics for Prometheus, unless they have their own address
//
// POST requests need a token of the operator, or must come from the worker's host if it has no
// Options.AdminKeyFile; otherwise the response is 403. /prestop needs Options.PreStopSecret, if it is set.
// All other responses except those of /livez and /metrics contain the Stats.
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
	mux.HandleFunc("POST /drain", w.requireToken(adminauth.ActionDrain, func(response http.ResponseWriter) {
		w.Drain()
		w.writeStats(response, http.StatusAccepted)
	}))
	mux.HandleFunc("POST /resume", w.requireToken(adminauth.ActionResume, func(response http.ResponseWriter) {
		status := http.StatusOK
		if !w.Resume() {
			status = http.StatusConflict
		}
		w.writeStats(response, status)
	}))
	mux.HandleFunc("GET /prestop", w.requirePreStopSecret(w.handlePreStop))
	mux.HandleFunc("GET /stats", func(response http.ResponseWriter, _ *http.Request) { w.writeStats(response, http.StatusOK) })
	if w.currentSettings().metricsAddress == "" {
		mux.Handle(metricsPattern, w.metricsHandler())
	}
	return mux
}

func (w *Worker) metricsHandler() http.Handler {
	return promhttp.HandlerFor(w.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxMetricsRequests})
}

// handlePreStop serves the preStop hook of a Pod. The hook can only send GET requests, and ends when it receives the response. The worker
// shuts down even if the client disconnects.
func (w *Worker) handlePreStop(response http.ResponseWriter, request *http.Request) {
	// The server would otherwise cancel the request's context at its read deadline.
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
	encoder := json.NewEncoder(response)
	encoder.SetEscapeHTML(false) // it would make texts of handlers six times as long
	if err := encoder.Encode(w.Stats()); err != nil {
		w.log.Debug("Failed to write a response of the admin API", "error", err)
	}
}
