package worker

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestMetricsOfTheProgramAreServedWithThoseOfTheWorker(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.send("default", "x")
	sent := prometheus.NewCounter(prometheus.CounterOpts{Name: "mails_sent_total", Help: "Mails that were sent."})
	o := Options{Config: env.config(), Pool: "mailers", Metrics: []prometheus.Collector{sent}}
	w := env.startWithOptions(o, func(context.Context, *Job) error {
		sent.Inc()
		return nil
	})
	poll.Until(t, "the job to be done", env.isEmpty)
	requireCleanShutdown(t, w)
	text := servedMetrics(t, w.Worker)
	for _, want := range []string{
		`mails_sent_total{pool="mailers"} 1`,
		`yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
		`yardmaster_worker_job_wait_seconds_count{pool="mailers",queue="orders"} 1`,
		`yardmaster_worker_job_duration_seconds_count{pool="mailers",queue="orders"} 1`,
	} {
		require.True(t, strings.Contains(text, want+"\n"), "no line %s in\n%s", want, text)
	}
}

func TestNamesCanBeOmittedFromMetrics(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"true":  `yardmaster_worker_jobs_total{queue="",result="done"} 1`,
		"false": `yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
		"":      `yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
	} {
		o, err := parseEnvironment(func(name string) string {
			return map[string]string{envPool: "mailers", envOmitNames: value}[name]
		})
		require.NoError(t, err)
		o.Config = newTestEnv(t).config()
		w, err := New(o, func(context.Context, *Job) error { return nil })
		require.NoError(t, err)
		w.metrics.countMessage("orders", resultDone)
		w.metrics.observeWait("orders", 0)
		w.metrics.observeDuration("orders", 0)
		text := servedMetrics(t, w)
		require.True(t, strings.Contains(text, want+"\n"), "%q: no line %s in\n%s", value, want, text)
		require.True(t, value != "true" || !strings.Contains(text, "mailers") && !strings.Contains(text, "orders"), "names in\n%s", text)
	}
	if _, err := parseEnvironment(func(name string) string { return map[string]string{envOmitNames: "maybe"}[name] }); err == nil ||
		!strings.Contains(err.Error(), envOmitNames) {
		t.Errorf("an invalid value causes %v", err)
	}
}

func servedMetrics(t *testing.T, w *Worker) string {
	t.Helper()
	response := httptest.NewRecorder()
	w.metricsHandler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}
