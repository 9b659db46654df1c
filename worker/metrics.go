package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// What became of jobs.
const (
	resultDone     = "done"
	resultRetried  = "retried"
	resultDead     = "dead"
	resultDropped  = "dropped"
	resultReturned = "returned"
	resultPutOff   = "put_off"
	// resultLate is a job done after its lease was lost, and before anybody else was done
	// with it.
	resultLate = "late"
	// resultStale is one where somebody else was.
	resultStale     = "stale"
	resultUnsettled = "unsettled"
)

// metrics have no names of objects in them: those are the labels of whoever scrapes.
type metrics struct {
	registry *prometheus.Registry

	jobs        *prometheus.CounterVec
	done        prometheus.Counter // of jobs, the one that is counted most
	duration    prometheus.Histogram
	wait        prometheus.Histogram
	renewals    *prometheus.CounterVec
	fetchErrors *prometheus.CounterVec
	reloads     *prometheus.CounterVec
}

func newMetrics(w *Worker) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_worker_jobs_total",
			Help: "What became of messages: done, retried, dead, dropped, returned unused, put_off; unsettled if the broker could not be " +
				"told; late and stale of jobs that ended after their lease.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "yardmaster_worker_job_duration_seconds",
			Help:    "Time that the handler took.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "yardmaster_worker_job_wait_seconds",
			Help:    "Time from when a job was sent, or became due, until it began.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_worker_lease_renewals_total",
			Help: "Leases that were renewed, or could not be.",
		}, []string{"result"}),
		fetchErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_worker_fetch_errors_total",
			Help: "Requests for messages that failed, by class of failure.",
		}, []string{"class"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yardmaster_worker_config_reloads_total",
			Help: "Times the configuration was read again.",
		}, []string{"result"}),
	}
	m.done = m.jobs.WithLabelValues(resultDone)
	m.registry.MustRegister(m.jobs, m.duration, m.wait, m.renewals, m.fetchErrors, m.reloads,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("yardmaster_worker_in_flight", "Jobs that run.", func() int { return w.Stats().InFlight }),
		gauge("yardmaster_worker_held", "Messages that are held and not begun.", func() int { return w.Stats().Held }),
		gauge("yardmaster_worker_capacity", "Jobs that can run at a time.", func() int { return w.Stats().Capacity }),
		gauge("yardmaster_worker_draining", "1 if nothing is taken.", func() int { return one(w.Stats().State != Running) }),
		gauge("yardmaster_worker_breakers_open", "Queues of which nothing, or little, is taken because jobs failed.", func() int {
			n := 0
			for _, q := range w.Stats().Queues {
				n += one(q.Breaker != breaker.Closed)
			}
			return n
		}),
	)
	return m
}

func gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (m *metrics) count(result string) { m.jobs.WithLabelValues(result).Inc() }

func (m *metrics) took(d time.Duration) { m.duration.Observe(d.Seconds()) }

func (m *metrics) waited(d time.Duration) { m.wait.Observe(max(d, 0).Seconds()) }

func (m *metrics) leaseRenewed(ok bool) { m.renewals.WithLabelValues(result(ok)).Inc() }

func (m *metrics) fetchFailed(err error) {
	m.fetchErrors.WithLabelValues(string(broker.ClassOf(err))).Inc()
}

func (m *metrics) reloaded(ok bool) { m.reloads.WithLabelValues(result(ok)).Inc() }

func result(ok bool) string {
	if ok {
		return "succeeded"
	}
	return "failed"
}
