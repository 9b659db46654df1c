package worker

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// Results of messages, the values of the label "result".
const (
	resultDone         = "done"
	resultRetried      = "retried"
	resultDeadLettered = "dead_lettered"
	resultDropped      = "dropped"
	resultCanceled     = "canceled"
	resultReleased     = "released"
	resultSnoozed      = "snoozed"
	resultPostponed    = "postponed"
	// resultLate, counted besides resultDone: the job was done after its lease was lost, before another worker settled the message.
	resultLate = "late"
	// resultStale: the job ended after its lease was lost, and another worker has the message.
	resultStale     = "stale"
	resultUnsettled = "unsettled"
)

// queueLabel is the label with the name of a queue on its broker. A worker has few queues.
const queueLabel = "queue"

// workerMetrics are the metrics of a worker. Prometheus adds the labels of the Pod that it scrapes, such as its namespace.
type workerMetrics struct {
	registry  *prometheus.Registry
	omitQueue bool

	messages    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	wait        *prometheus.HistogramVec
	extensions  *prometheus.CounterVec
	fetchErrors *prometheus.CounterVec
	reloads     *prometheus.CounterVec
	timeouts    prometheus.Counter
	reports     *prometheus.CounterVec
}

// newMetrics returns an error if metrics of the options have names of other metrics, or are invalid.
func newMetrics(w *Worker) (*workerMetrics, error) {
	m := &workerMetrics{
		registry: prometheus.NewRegistry(), omitQueue: w.options.OmitObjectNames,
		messages: newCounterVec("yardmaster_worker_jobs_total",
			"Number of messages by result: done, retried, dead_lettered, dropped (the queue keeps no dead letters), canceled, snoozed (given back by the "+
				"handler without an attempt), released (given back before a handler saw it, or because the end of the drain timeout interrupted the handler), postponed (the attempts could not be counted), unsettled (the result could not be sent to the broker), late and "+
				"stale (the job ended after its lease was lost).", queueLabel, "result"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "yardmaster_worker_job_duration_seconds",
			Help:    "Time that handlers take.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		}, []string{queueLabel}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "yardmaster_worker_job_wait_seconds",
			Help:    "Time from when a job was sent or became due to when its handler is called.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		}, []string{queueLabel}),
		extensions:  newCounterVec("yardmaster_worker_lease_renewals_total", "Number of attempts to extend a lease, by result: succeeded or failed.", "result"),
		fetchErrors: newCounterVec("yardmaster_worker_fetch_errors_total", "Number of failed requests for messages, by class of the error.", "class"),
		reloads:     newCounterVec("yardmaster_worker_config_reloads_total", "Number of configuration reloads, by result: succeeded or failed.", "result"),
		timeouts:    prometheus.NewCounter(prometheus.CounterOpts{Name: "yardmaster_worker_job_timeouts_total", Help: "Number of attempts that exceeded the timeout of their job."}),
		reports:     newCounterVec("yardmaster_worker_state_reports_total", "Number of attempts to store the state of a job, by result: succeeded or failed.", "result"),
	}
	registerer := prometheus.Registerer(m.registry)
	if pool := w.options.Pool; pool != "" && !w.options.OmitObjectNames {
		registerer = prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool}, m.registry)
	}
	registerer.MustRegister(m.messages, m.duration, m.wait, m.extensions, m.fetchErrors, m.reloads, m.timeouts, m.reports,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newGaugeFunc("yardmaster_worker_in_flight", "Number of running jobs, without overdue ones.", func() int { return w.Stats().InFlight }),
		newGaugeFunc("yardmaster_worker_overdue", "Number of jobs whose handlers still run although the timeout of the job is over.", func() int { return w.Stats().Overdue }),
		newGaugeFunc("yardmaster_worker_prefetched", "Number of prefetched messages, whose jobs have not started.", func() int { return w.Stats().Prefetched }),
		newGaugeFunc("yardmaster_worker_capacity", "Number of jobs that can run at a time.", func() int { return w.Stats().Capacity }),
		newGaugeFunc("yardmaster_worker_draining", "1 if the worker takes no jobs because it is draining or drained, else 0.", func() int { return boolToInt(w.Stats().State != StateRunning) }),
		newGaugeFunc("yardmaster_worker_handler_available", "0 while the handler cannot run jobs, so that the worker takes none, else 1.", func() int { return boolToInt(w.availability.unavailable() == "") }),
		newGaugeFunc("yardmaster_worker_breakers_open", "Number of queues whose circuit breaker is open or half-open.", func() int {
			count := 0
			for _, q := range w.Stats().Queues {
				count += boolToInt(q.Breaker != breaker.Closed)
			}
			return count
		}),
	)
	for _, collector := range w.options.Metrics {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of the options: %w", err)
		}
	}
	return m, nil
}

func newCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGaugeFunc(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

func (m *workerMetrics) queueName(queue string) string {
	if m.omitQueue {
		return ""
	}
	return queue
}

func (m *workerMetrics) countMessage(queue, result string) {
	m.messages.WithLabelValues(m.queueName(queue), result).Inc()
}

func (m *workerMetrics) observeDuration(queue string, d time.Duration) {
	m.duration.WithLabelValues(m.queueName(queue)).Observe(d.Seconds())
}

// observeWait counts a negative wait, which a difference between clocks can cause, as 0.
func (m *workerMetrics) observeWait(queue string, d time.Duration) {
	m.wait.WithLabelValues(m.queueName(queue)).Observe(max(d, 0).Seconds())
}

func (m *workerMetrics) recordFetchError(err error) {
	m.fetchErrors.WithLabelValues(string(broker.ClassOf(err))).Inc()
}

func successLabel(succeeded bool) string {
	if succeeded {
		return "succeeded"
	}
	return "failed"
}
