package queue

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

// messagesCollector sums up, when scraped, what the statuses say.
type messagesCollector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (messagesCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- messages
	descriptions <- queues
}

// Collect implements prometheus.Collector.
func (c messagesCollector) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list v1alpha1.QueueList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("queue").Error(err, "Counting the messages of Queues")
		return
	}
	sums, ready := map[[2]string]int64{}, map[[3]string]int64{}
	for i := range list.Items {
		q := &list.Items[i]
		for state, number := range map[string]*int64{
			"ready": q.Status.Ready, "in_flight": q.Status.InFlight, "delayed": q.Status.Delayed, "dead": q.Status.Dead,
		} {
			if number != nil {
				sums[[2]string{q.Namespace, state}] += *number
			}
		}
		is := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionReady)
		if is == nil {
			is = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NotYetSeen"}
		}
		ready[[3]string{q.Namespace, string(is.Status), is.Reason}]++
	}
	for labels, number := range sums {
		collected <- prometheus.MustNewConstMetric(messages, prometheus.GaugeValue, float64(number), labels[:]...)
	}
	for labels, number := range ready {
		collected <- prometheus.MustNewConstMetric(queues, prometheus.GaugeValue, float64(number), labels[:]...)
	}
}
