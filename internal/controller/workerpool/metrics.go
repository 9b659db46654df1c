package workerpool

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

var (
	scalingsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_scalings_total",
		Help: "Changes of the desired number of workers, by direction (up or down) and reason.",
	}, []string{"direction", "reason"})
	rolloutsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_rollouts_total",
		Help: "Completed rollouts.",
	})
	drainTimeoutsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_drain_timeouts_total",
		Help: "Number of times that workers of a WorkerPool exceeded drain.timeout.",
	})
)

func init() { metrics.Registry.MustRegister(scalingsTotal, rolloutsTotal, drainTimeoutsTotal) }

// countChanges counts what has changed between two stored statuses.
func countChanges(before, after *v1alpha1.WorkerPoolStatus) {
	if before.Desired != after.Desired {
		direction, reason := "up", v1alpha1.ReasonManual
		if after.Desired < before.Desired {
			direction = "down"
		}
		if after.LastDecision != nil {
			reason = after.LastDecision.Reason
		}
		scalingsTotal.WithLabelValues(direction, reason).Inc()
	}
	if before.CurrentRevision != "" && before.CurrentRevision != after.CurrentRevision {
		rolloutsTotal.Inc()
	}
	timedOut := v1alpha1.ConditionDrainTimedOut
	if meta.IsStatusConditionTrue(after.Conditions, timedOut) && !meta.IsStatusConditionTrue(before.Conditions, timedOut) {
		drainTimeoutsTotal.Inc()
	}
}

// Gauges of the statuses of a namespace's pools together. The names of pools are no labels,
// because a cluster may have thousands of them.
var (
	conditionsGauge = prometheus.NewDesc("yardmaster_workerpool_conditions",
		"WorkerPools of a namespace by the status and reason of a condition.", []string{"namespace", "condition", "status", "reason"}, nil)
	decisionsGauge = prometheus.NewDesc("yardmaster_workerpool_decisions",
		"Autoscaled WorkerPools of a namespace by the reason of their last scaling decision.", []string{"namespace", "reason"}, nil)
	objectivesGauge = prometheus.NewDesc("yardmaster_workerpool_objectives",
		"WorkerPools of a namespace by whether they meet their waiting time objective: True, False or Unknown.", []string{"namespace", "met"}, nil)
	workersGauge = prometheus.NewDesc("yardmaster_workerpool_workers",
		"Workers of all WorkerPools of a namespace by state: recommended (computed from metrics), desired (after limits), ready, busy or draining.",
		[]string{"namespace", "state"}, nil)
	messagesGauge = prometheus.NewDesc("yardmaster_workerpool_messages",
		"Messages of all WorkerPools of a namespace by state: backlog or in_flight.", []string{"namespace", "state"}, nil)
)

// RegisterMetrics registers the gauges. It must be called once for a process, unlike New.
func RegisterMetrics(cache client.Reader) error {
	if err := metrics.Registry.Register(statusCollector(cache)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func statusCollector(cache client.Reader) prometheus.Collector {
	return kube.GaugeCollector[*v1alpha1.WorkerPoolList]{
		Reader: cache, NewList: func() *v1alpha1.WorkerPoolList { return &v1alpha1.WorkerPoolList{} }, Sum: addPools,
		Gauges: []*prometheus.Desc{conditionsGauge, decisionsGauge, objectivesGauge, workersGauge, messagesGauge},
	}
}

func addPools(sums kube.GaugeSums, list *v1alpha1.WorkerPoolList) {
	for i := range list.Items {
		addPool(sums, &list.Items[i])
	}
}

func addPool(sums kube.GaugeSums, wp *v1alpha1.WorkerPool) {
	status := &wp.Status
	for i := range status.Conditions {
		c := &status.Conditions[i]
		sums.Add(conditionsGauge, 1, wp.Namespace, c.Type, string(c.Status), c.Reason)
	}
	if slo := status.SLO; slo != nil {
		met := slo.Met
		if met == "" {
			met = metav1.ConditionUnknown
		}
		sums.Add(objectivesGauge, 1, wp.Namespace, string(met))
	}
	recommended := status.Desired
	if d := status.LastDecision; d != nil {
		recommended = d.Recommendation
		if d.Reason != "" {
			sums.Add(decisionsGauge, 1, wp.Namespace, d.Reason)
		}
	}
	count := func(gauge *prometheus.Desc, state string, number int64) {
		sums.Add(gauge, number, wp.Namespace, state)
	}
	count(workersGauge, "recommended", int64(recommended))
	count(workersGauge, "desired", int64(status.Desired))
	count(workersGauge, "ready", int64(status.Ready))
	count(workersGauge, "draining", int64(status.Draining))
	if status.Busy != nil {
		count(workersGauge, "busy", int64(*status.Busy))
	}
	if status.Backlog != nil {
		count(messagesGauge, "backlog", *status.Backlog)
	}
	if status.InFlight != nil {
		count(messagesGauge, "in_flight", *status.InFlight)
	}
}
