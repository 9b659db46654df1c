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

// maxNetworkPolicyBytes is more than the operator's own NetworkPolicies have, at most.
const maxNetworkPolicyBytes = 64 << 10

// TrimNetworkPolicy is a cache transform that removes the managed fields of a NetworkPolicy. It replaces the rules
// of one that is too large by rules that allow everything, so that a tenant cannot fill the operator's memory, and
// decisions assume no restriction that is not there.
func TrimNetworkPolicy(object any) (any, error) {
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return object, nil
	}
	policy.ManagedFields = nil
	if policy.Spec.Size() > maxNetworkPolicyBytes {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	}
	return object, nil
}
