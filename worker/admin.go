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

// Admin is the worker's own API:
//
//	GET  /livez    200 while the process is there
//	GET  /readyz   200 while it takes jobs, else 503
//	POST /drain    has it take no more; 202 with the stats
//	POST /resume   has it take jobs again; 200, or 409 if it is about to end
//	GET  /prestop  has it drain and end; 200 once it is drained, 503 if it could not in time
//	GET  /stats    what it does
//	GET  /metrics  the same for Prometheus
func (w *Worker) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(answer http.ResponseWriter, _ *http.Request) { answer.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(answer http.ResponseWriter, _ *http.Request) {
		if s := w.Stats(); !s.Connected || s.State != Running {
			w.answer(answer, http.StatusServiceUnavailable)
			return
		}
		w.answer(answer, http.StatusOK)
	})
	mux.HandleFunc("POST /drain", func(answer http.ResponseWriter, _ *http.Request) {
		w.Drain()
		w.answer(answer, http.StatusAccepted)
	})
	mux.HandleFunc("POST /resume", func(answer http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if !w.Resume() {
			status = http.StatusConflict
		}
		w.answer(answer, status)
	})
	mux.HandleFunc("GET /prestop", w.preStop)
	mux.HandleFunc("GET /stats", func(answer http.ResponseWriter, _ *http.Request) { w.answer(answer, http.StatusOK) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// preStop is what a Pod's preStop hook asks for, which can only get, and which is over when
// it is answered. Whoever hangs up changes nothing: the worker ends all the same.
func (w *Worker) preStop(answer http.ResponseWriter, request *http.Request) {
	// The deadline is for reading requests; this one would be taken for broken off by it.
	err := http.NewResponseController(answer).SetReadDeadline(time.Time{})
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		w.log.Debug("A request to drain and end may be broken off", "error", err)
	}
	status := http.StatusOK
	if !w.quietBy(request.Context(), w.depart()) {
		status = http.StatusServiceUnavailable
	}
	w.answer(answer, status)
}

// answer answers with the stats.
func (w *Worker) answer(answer http.ResponseWriter, status int) {
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(status)
	if err := json.NewEncoder(answer).Encode(w.Stats()); err != nil {
		w.log.Debug("Somebody who asked did not wait for the answer", "error", err)
	}
}

func (w *Worker) server() *http.Server {
	return &http.Server{Handler: w.Admin(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 14}
}

// serve serves the admin API. The function it returns ends that.
func (w *Worker) serve(ctx context.Context, address string) (stop func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := w.server()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("The admin API has ended", "error", err)
		}
	}()
	return func() {
		// Whoever asks for the stats may hear that all is drained.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close()
		}
		<-ended
	}, nil
}
