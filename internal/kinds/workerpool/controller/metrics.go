package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

const poolLabel = "pool"

// Gauges of the statuses.
var (
	conditionsGauge = metric.NewSum("yardmaster_workerpool_conditions",
		"WorkerPools by the status and reason of a condition.", "namespace", poolLabel, "condition", "status", "reason")
	decisionsGauge = metric.NewSum("yardmaster_workerpool_decisions",
		"Autoscaled WorkerPools by the reason of their last scaling decision.", "namespace", poolLabel, "reason")
	objectivesGauge = metric.NewSum("yardmaster_workerpool_objectives",
		"WorkerPools by whether they meet their waiting time objective: True, False or Unknown.", "namespace", poolLabel, "met")
	workersGauge = metric.NewSum("yardmaster_workerpool_workers",
		"Workers of a WorkerPool by state: recommended (computed from metrics), desired (after limits), ready, busy, draining, or breaker_open (its circuit breaker is not closed).", "namespace", poolLabel, "state")
	messagesGauge = metric.NewSum("yardmaster_workerpool_messages",
		"Messages of a WorkerPool by state: backlog, in_flight, or snoozed (given back by workers, a part of the backlog).", "namespace", poolLabel, "state")
)

// RegisterMetrics registers the gauges. Unlike New, it must be called only once in a process.
func RegisterMetrics(cache client.Reader) error {
	return metric.Register(statusCollector(cache))
}

func statusCollector(cache client.Reader) prometheus.Collector {
	return metric.NewSumCollector(cache, &v1alpha1.WorkerPoolList{}, addPools,
		conditionsGauge, decisionsGauge, objectivesGauge, workersGauge, messagesGauge)
}

func addPools(sums metric.Sums, list *v1alpha1.WorkerPoolList) {
	for i := range list.Items {
		wp := &list.Items[i]
		status, name := &wp.Status, metric.ObjectName(wp)
		for i := range status.Conditions {
			c := &status.Conditions[i]
			sums.Add(conditionsGauge, 1, wp.Namespace, name, c.Type, string(c.Status), c.Reason)
		}
		if status.ObjectiveMet != "" {
			sums.Add(objectivesGauge, 1, wp.Namespace, name, string(status.ObjectiveMet))
		}
		recommended := status.Desired
		if d := status.LastDecision; d != nil {
			recommended = d.Recommendation
			if d.Reason != "" {
				sums.Add(decisionsGauge, 1, wp.Namespace, name, d.Reason)
			}
		}
		count := func(gauge *metric.Gauge, state string, number int64) {
			sums.Add(gauge, number, wp.Namespace, name, state)
		}
		count(workersGauge, "recommended", int64(recommended))
		count(workersGauge, "desired", int64(status.Desired))
		count(workersGauge, "ready", int64(status.Ready))
		count(workersGauge, "draining", int64(status.Draining))
		if status.Busy != nil {
			count(workersGauge, "busy", int64(*status.Busy))
		}
		if status.OpenBreakers != nil {
			count(workersGauge, "breaker_open", int64(*status.OpenBreakers))
		}
		if status.Snoozed != nil {
			count(messagesGauge, "snoozed", *status.Snoozed)
		}
		if status.Backlog != nil {
			count(messagesGauge, "backlog", *status.Backlog)
		}
		if status.InFlight != nil {
			count(messagesGauge, "in_flight", *status.InFlight)
		}
	}
}
