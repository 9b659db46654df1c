package workerpool

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// What the statuses of a namespace's pools say together. Names of pools are not among the
// labels: there may be thousands of them.
var (
	conditions = prometheus.NewDesc("yardmaster_workerpool_conditions",
		"WorkerPools of a namespace by a condition's status and reason.", []string{"namespace", "condition", "status", "reason"}, nil)
	decisions = prometheus.NewDesc("yardmaster_workerpool_decisions",
		"WorkerPools of a namespace that are autoscaled, by the reason of their last decision.", []string{"namespace", "reason"}, nil)
	objectives = prometheus.NewDesc("yardmaster_workerpool_objectives",
		"WorkerPools of a namespace by whether they keep to their waiting time: True, False or Unknown.", []string{"namespace", "met"}, nil)
	workers = prometheus.NewDesc("yardmaster_workerpool_workers",
		"Workers of all pools of a namespace, by state: wanted, by what their figures ask for; desired, after all rules; ready, busy, draining.",
		[]string{"namespace", "state"}, nil)
	waiting = prometheus.NewDesc("yardmaster_workerpool_messages",
		"Messages for all pools of a namespace, by state: backlog or in_flight.", []string{"namespace", "state"}, nil)
)

// RegisterMetrics has what the statuses say scraped. It is once for a process, unlike a
// Reconciler.
func RegisterMetrics(cache client.Reader) error {
	if err := metrics.Registry.Register(collector(cache)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func collector(cache client.Reader) prometheus.Collector {
	return kube.GaugeCollector[*v1alpha1.WorkerPoolList]{
		Reader: cache, NewList: func() *v1alpha1.WorkerPoolList { return &v1alpha1.WorkerPoolList{} }, Sum: sum,
		Gauges: []*prometheus.Desc{conditions, decisions, objectives, workers, waiting},
	}
}

func sum(sums kube.GaugeSums, list *v1alpha1.WorkerPoolList) {
	for i := range list.Items {
		sumOne(sums, &list.Items[i])
	}
}

func sumOne(sums kube.GaugeSums, wp *v1alpha1.WorkerPool) {
	status := &wp.Status
	for i := range status.Conditions {
		c := &status.Conditions[i]
		sums.Add(conditions, 1, wp.Namespace, c.Type, string(c.Status), c.Reason)
	}
	if slo := status.SLO; slo != nil {
		met := slo.Met
		if met == "" {
			met = metav1.ConditionUnknown
		}
		sums.Add(objectives, 1, wp.Namespace, string(met))
	}
	wanted := status.Desired
	if d := status.LastDecision; d != nil {
		wanted = d.Want
		if d.Reason != "" {
			sums.Add(decisions, 1, wp.Namespace, d.Reason)
		}
	}
	count := func(description *prometheus.Desc, state string, number int64) {
		sums.Add(description, number, wp.Namespace, state)
	}
	count(workers, "wanted", int64(wanted))
	count(workers, "desired", int64(status.Desired))
	count(workers, "ready", int64(status.Ready))
	count(workers, "draining", int64(status.Draining))
	if status.Busy != nil {
		count(workers, "busy", int64(*status.Busy))
	}
	if status.Backlog != nil {
		count(waiting, "backlog", *status.Backlog)
	}
	if status.InFlight != nil {
		count(waiting, "in_flight", *status.InFlight)
	}
}
