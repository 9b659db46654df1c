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
	corrections = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_queue_drift_corrections_total",
		Help: "Times that a queue on a broker was changed back after somebody had changed it by hand.",
	})
	rescues = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_queue_rescued_messages_total",
		Help: "Messages made dead letters because their broker had given up on them by itself.",
	})
	messages = prometheus.NewDesc("yardmaster_queue_messages",
		"Messages in all queues of a namespace, as last seen, by state.", []string{"namespace", "state"}, nil)
	queues = prometheus.NewDesc("yardmaster_queue_queues",
		"Queues of a namespace by the reason of their condition Ready.", []string{"namespace", "ready", "reason"}, nil)
)

func init() {
	metrics.Registry.MustRegister(corrections, rescues)
}

// registerMetrics has what the statuses say scraped.
func registerMetrics(cache client.Reader) error {
	err := metrics.Registry.Register(kube.GaugeCollector[*v1alpha1.QueueList]{
		Reader: cache, NewList: func() *v1alpha1.QueueList { return &v1alpha1.QueueList{} }, Sum: sum, Gauges: []*prometheus.Desc{messages, queues},
	})
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func sum(sums kube.GaugeSums, list *v1alpha1.QueueList) {
	for i := range list.Items {
		q := &list.Items[i]
		for state, number := range map[string]*int64{
			"ready": q.Status.Ready, "in_flight": q.Status.InFlight, "delayed": q.Status.Delayed, "dead": q.Status.Dead,
		} {
			if number != nil {
				sums.Add(messages, *number, q.Namespace, state)
			}
		}
		sums.AddReady(queues, q, q.Status.Conditions)
	}
}
