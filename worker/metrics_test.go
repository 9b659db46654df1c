package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestMetricsOfTheProgramAreServedWithThoseOfTheWorker(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.Send("x")
	sent := prometheus.NewCounter(prometheus.CounterOpts{Name: "mails_sent_total", Help: "Mails that were sent."})
	o := Options{Config: env.config(), Pool: "mailers", Metrics: []prometheus.Collector{sent}}
	w := env.startWithOptions(o, func(context.Context, *Job) error {
		sent.Inc()
		return nil
	})
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	text := getAdmin(t, w.Worker, "/metrics")
	for _, want := range []string{
		`mails_sent_total{pool="mailers"} 1`,
		`yardmaster_worker_jobs_total{pool="mailers",queue="orders",result="done"} 1`,
		`yardmaster_worker_job_wait_seconds_count{pool="mailers",queue="orders"} 1`,
		`yardmaster_worker_job_duration_seconds_count{pool="mailers",queue="orders"} 1`,
	} {
		require.Contains(t, text, want+"\n")
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
		w := newAdminWorker(t, o)
		w.metrics.countMessage("orders", resultDone)
		w.metrics.observeWait("orders", 0)
		w.metrics.observeDuration("orders", 0)
		text := getAdmin(t, w, "/metrics")
		require.Contains(t, text, want+"\n")
		require.True(t, value != "true" || !strings.Contains(text, "mailers") && !strings.Contains(text, "orders"), "names in\n%s", text)
	}
	_, err := parseEnvironment(func(name string) string { return map[string]string{envOmitNames: "maybe"}[name] })
	require.ErrorContains(t, err, envOmitNames)
}
