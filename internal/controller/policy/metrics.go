package policy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var policies = prometheus.NewDesc("yardmaster_policy_policies",
	"Policies of a namespace by their condition Ready and its reason.", []string{"namespace", "ready", "reason"}, nil)

// policiesCollector sums up, when scraped, what the statuses say.
type policiesCollector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (policiesCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- policies }

// Collect implements prometheus.Collector.
func (c policiesCollector) Collect(collected chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list v1alpha1.PolicyList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.Log.WithName("policy").Error(err, "Counting Policies")
		return
	}
	sums := map[[3]string]int64{}
	for i := range list.Items {
		p := &list.Items[i]
		is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if is == nil {
			is = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NotYetSeen"}
		}
		sums[[3]string{p.Namespace, string(is.Status), is.Reason}]++
	}
	for labels, number := range sums {
		collected <- prometheus.MustNewConstMetric(policies, prometheus.GaugeValue, float64(number), labels[:]...)
	}
}
