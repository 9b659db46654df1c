package queue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

var (
	driftCorrections = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_queue_drift_corrections_total",
		Help: "Number of times that the operator changed the configuration of a queue on its broker back to the spec.",
	})
	rescuedMessages = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_queue_rescued_messages_total",
		Help: "Number of messages that became dead letters because the broker stopped delivering them.",
	})
	messagesGauge = prometheus.NewDesc("yardmaster_queue_messages",
		"Messages in all queues of a namespace, by state, as last reported by the brokers.", []string{"namespace", "state"}, nil)
	queuesGauge = prometheus.NewDesc("yardmaster_queue_queues",
		"Queues of a namespace by status and reason of their condition Ready.", []string{"namespace", "ready", "reason"}, nil)
)

func init() {
	metrics.Registry.MustRegister(driftCorrections, rescuedMessages)
}

// registerMetrics registers the gauges that are computed from the statuses in the cache.
func registerMetrics(cache client.Reader) error {
	err := metrics.Registry.Register(kube.GaugeCollector[*v1alpha1.QueueList]{
		Reader: cache, NewList: func() *v1alpha1.QueueList { return &v1alpha1.QueueList{} }, Sum: sumStatuses, Gauges: []*prometheus.Desc{messagesGauge, queuesGauge},
	})
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func sumStatuses(sums kube.GaugeSums, list *v1alpha1.QueueList) {
	for i := range list.Items {
		q := &list.Items[i]
		for state, number := range map[string]*int64{
			"ready": q.Status.Ready, "in_flight": q.Status.InFlight, "delayed": q.Status.Delayed, "dead": q.Status.Dead,
		} {
			if number != nil {
				sums.Add(messagesGauge, *number, q.Namespace, state)
			}
		}
		sums.AddReady(queuesGauge, q, q.Status.Conditions)
	}
}
