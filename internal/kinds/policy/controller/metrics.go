package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

var policiesGauge = metric.NewSum("yardmaster_policy_policies",
	"Policies of a namespace by the status and reason of their condition Ready.", "namespace", "ready", "reason")

func addPolicies(sums metric.Sums, list *v1alpha1.PolicyList) {
	for i := range list.Items {
		sums.AddCondition(policiesGauge, list.Items[i].Status.Conditions, v1alpha1.ConditionReady, list.Items[i].Namespace)
	}
}
