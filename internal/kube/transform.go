package kube

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

const (
	// LargeBytes is the size from which the cache keeps only few fields of an object. Users may create any number of objects of
	// more than 1 MB: without a bound, those of one namespace fill the operator's memory, and stop it for all.
	LargeBytes = 16 << 10
	// maxAnnotationBytes is more than the valid values of the annotations that controllers read.
	maxAnnotationBytes = 1 << 10
	// annotationTrimmed marks a trimmed object in the cache. No object on the API server needs it.
	annotationTrimmed = v1alpha1.Prefix + "trimmed"
)

// TrimLarge returns a cache transform that drops fields of a large object, which Loop then reads from the API server. isLarge need
// not count the annotations, of which a trimmed object keeps Yardmaster's.
func TrimLarge[T client.Object](isLarge func(T) bool, drop func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		o, ok := object.(T)
		if !ok {
			return TrimObject(object)
		}
		annotations := o.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation) // as large as the spec
		if IsLarge(o, isLarge) {
			kept := map[string]string{annotationTrimmed: ""}
			for key, value := range annotations {
				if strings.HasPrefix(key, v1alpha1.Prefix) {
					kept[key] = value[:min(len(value), maxAnnotationBytes)]
				}
			}
			o.SetAnnotations(kept)
			drop(o)
		}
		return TrimObject(o)
	}
}

// IsLarge reports whether the cache trims an object: isLarge, or the size of its annotations.
func IsLarge[T client.Object](object T, isLarge func(T) bool) bool {
	return SizeOf(object.GetAnnotations()) > LargeBytes || isLarge(object)
}

// isTrimmed reports whether TrimLarge dropped fields of an object.
func isTrimmed(object client.Object) bool {
	_, found := object.GetAnnotations()[annotationTrimmed]
	return found
}

// SizeOf returns the number of bytes of the names and values in a map.
func SizeOf[V ~string](values map[string]V) int {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
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
