package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// DropJobTemplate is a cache transform that removes the largest fields of a Job, which no decision
// reads: its Pod template, Pod failure policy and managed fields. Jobs are created, patched and
// deleted, but never updated as a whole, so no write loses these fields.
func DropJobTemplate(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		job.Spec.Template = corev1.PodTemplateSpec{}
		job.Spec.PodFailurePolicy = nil
		job.ManagedFields = nil
	}
	return object, nil
}

// DropNetworkPolicyRules is a cache transform that removes the rules and the managed fields of a
// NetworkPolicy. Decisions read only which Pods it selects.
func DropNetworkPolicyRules(object any) (any, error) {
	if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
		policy.Spec.Ingress, policy.Spec.Egress = nil, nil
		policy.ManagedFields = nil
	}
	return object, nil
}
