package policy

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

var policiesGauge = prometheus.NewDesc("yardmaster_policy_policies",
	"Policies of a namespace by the status and reason of their condition Ready.", []string{"namespace", "ready", "reason"}, nil)

// registerMetrics registers the gauge.
func registerMetrics(cache client.Reader) error {
	err := metrics.Registry.Register(kube.GaugeCollector[*v1alpha1.PolicyList]{
		Reader: cache, NewList: func() *v1alpha1.PolicyList { return &v1alpha1.PolicyList{} }, Sum: addPolicies, Gauges: []*prometheus.Desc{policiesGauge},
	})
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

func addPolicies(sums kube.GaugeSums, list *v1alpha1.PolicyList) {
	for i := range list.Items {
		sums.AddReady(policiesGauge, &list.Items[i], list.Items[i].Status.Conditions)
	}
}
