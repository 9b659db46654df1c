package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TrimObject is a cache transform that removes the managed fields of an object, and then copies it. The copy's lists have no
// spare capacity: decoders leave up to three times as much as small lists need, and keep all objects of a list in one array.
func TrimObject(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	o.SetManagedFields(nil)
	return o.DeepCopyObject(), nil
}

// DropJobTemplate is a cache transform that removes the largest fields of a Job, which no decision reads: its Pod template, Pod
// failure policy and managed fields. Jobs are created, patched and deleted, but never updated as a whole, so no write loses
// these fields.
func DropJobTemplate(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		job.Spec.Template = corev1.PodTemplateSpec{}
		job.Spec.PodFailurePolicy = nil
	}
	return TrimObject(object)
}

// maxNetworkPolicyBytes is larger than any NetworkPolicy of the operator.
const maxNetworkPolicyBytes = 64 << 10

// TrimNetworkPolicy is a cache transform that removes the managed fields of a NetworkPolicy. It replaces the rules of a too
// large NetworkPolicy by rules that allow everything, so that a tenant cannot fill the operator's memory, and decisions assume
// no restriction that does not exist.
func TrimNetworkPolicy(object any) (any, error) {
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return object, nil
	}
	if policy.Spec.Size() > maxNetworkPolicyBytes {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	}
	return TrimObject(policy)
}
