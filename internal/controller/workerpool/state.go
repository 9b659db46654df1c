package workerpool

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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
func RegisterMetrics(reader client.Reader) error {
	if err := metrics.Registry.Register(stateCollector{reader}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// stateCollector sums up, when scraped, what the statuses say.
type stateCollector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (stateCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{conditions, decisions, objectives, workers, waiting} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list v1alpha1.WorkerPoolList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("workerpool").Error(err, "Counting WorkerPools")
		return
	}
	s := sums{}
	for i := range list.Items {
		s.add(&list.Items[i])
	}
	for of, number := range s {
		collected <- prometheus.MustNewConstMetric(of.description, prometheus.GaugeValue, float64(number), of.values()...)
	}
}

// sum is what is counted together: values of a description's labels, empty ones behind.
type sum struct {
	description *prometheus.Desc
	namespace   string
	labels      [3]string
}

func (s sum) values() []string {
	values := []string{s.namespace}
	for _, label := range s.labels {
		if label != "" {
			values = append(values, label)
		}
	}
	return values
}

type sums map[sum]int64

func (s sums) add(wp *v1alpha1.WorkerPool) {
	status := &wp.Status
	for i := range status.Conditions {
		c := &status.Conditions[i]
		s[sum{conditions, wp.Namespace, [3]string{c.Type, string(c.Status), c.Reason}}]++
	}
	if slo := status.SLO; slo != nil {
		met := slo.Met
		if met == "" {
			met = metav1.ConditionUnknown
		}
		s[sum{objectives, wp.Namespace, [3]string{string(met)}}]++
	}
	wanted := status.Desired
	if d := status.LastDecision; d != nil {
		wanted = d.Want
		if d.Reason != "" {
			s[sum{decisions, wp.Namespace, [3]string{d.Reason}}]++
		}
	}
	count := func(description *prometheus.Desc, state string, number int64) {
		s[sum{description, wp.Namespace, [3]string{state}}] += number
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
