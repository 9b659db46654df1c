package kube

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// LargeBytes is the memory from which on the cache keeps only few fields of an object. Users may create any number of objects of
	// more than 1 MB, which need several times as much memory: without a bound, those of one namespace fill the operator's memory,
	// and stop it for all.
	LargeBytes = 24 << 10
	// LargeChildBytes is the same for objects that have only few fields left, and largeMetadataBytes for metadata.
	LargeChildBytes, largeMetadataBytes = 16 << 10, 8 << 10
	// maxMetadataBytes is the memory of the labels, of the annotations, of the finalizers and of the owner references that the
	// cache keeps of a large object. All that the operator sets needs less.
	maxMetadataBytes = 6 << 10
	// annotationTrimmed marks a trimmed object in the cache. No object on the API server needs it.
	annotationTrimmed = v1alpha1.Prefix + "trimmed"
)

// TrimObject is a cache transform that removes what no decision reads, and most of the metadata of a large object.
func TrimObject(object any) (any, error) {
	return trim(object, LargeChildBytes, func(client.Object) {})
}

// TrimLarge returns a cache transform as TrimObject, which also drops fields of a large object. The object is marked: Loop reads it
// from the API server.
func TrimLarge[T client.Object](drop func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		return trim(object, LargeBytes, func(large client.Object) {
			if typed, ok := large.(T); ok {
				drop(typed)
			}
		})
	}
}

// trim returns a copy of an object, whose lists have no spare capacity: decoders leave up to three times as much as small lists need,
// and keep all objects of a list in one array.
func trim(object any, limit int, drop func(client.Object)) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	dropUnread(o)
	if _, isMetadata := o.(*metav1.PartialObjectMetadata); isMetadata { // decisions read no annotations of these
		o.SetAnnotations(nil)
		limit = largeMetadataBytes
	}
	if decision.MemoryOf(o) > limit {
		trimLabels(o)
		kept := keepOwn(o.GetAnnotations(), func(key string) bool { return strings.HasPrefix(key, v1alpha1.Prefix) })
		kept[annotationTrimmed] = ""
		o.SetAnnotations(kept)
		if decision.MemoryOf(o.GetFinalizers()) > maxMetadataBytes {
			o.SetFinalizers(nil)
		}
		if decision.MemoryOf(o.GetOwnerReferences()) > maxMetadataBytes {
			o.SetOwnerReferences(nil)
		}
		drop(o)
	}
	return o.DeepCopyObject(), nil
}

// dropUnread removes the managed fields and the applied manifest, which is as long as the object.
func dropUnread(object metav1.Object) {
	object.SetManagedFields(nil)
	delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

// trimLabels removes most labels of an object with too many labels, so that no decision depends on whether an object was read from the
// cache or from the API server.
func trimLabels(object metav1.Object) {
	if labels := object.GetLabels(); decision.MemoryOf(labels) > maxMetadataBytes {
		object.SetLabels(keepOwn(labels, func(string) bool { return true }))
	}
}

// keepOwn returns the wanted labels or annotations, Yardmaster's first, then by name, up to about maxMetadataBytes.
func keepOwn(all map[string]string, wanted func(key string) bool) map[string]string {
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if own := strings.HasPrefix(a, v1alpha1.Prefix); own != strings.HasPrefix(b, v1alpha1.Prefix) {
			if own {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	kept, size := map[string]string{}, 0
	for _, key := range keys {
		const place = 64 // in a map that is half full
		if bytes := place + len(key) + len(all[key]); wanted(key) && size+bytes <= maxMetadataBytes {
			kept[key], size = all[key], size+bytes
		}
	}
	return kept
}

// isTrimmed reports whether a cache transform dropped fields of an object.
func isTrimmed(object client.Object) bool {
	_, found := object.GetAnnotations()[annotationTrimmed]
	return found
}

// TrimTooLarge returns a cache transform as TrimObject, which drops the spec of an object for which decision.IsTooLarge is true. The
// object stays marked.
func TrimTooLarge[T client.Object](spec func(T) any, drop func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := TrimObject(object)
		if o, ok := trimmed.(T); ok && decision.IsTooLarge(o, spec(o)) {
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[decision.AnnotationTooLarge] = ""
			o.SetAnnotations(annotations)
			drop(o)
		}
		return trimmed, err
	}
}

// TrimJob is a cache transform that removes what no decision reads of a Job, which is most of it. Jobs are created, patched and
// deleted, but never updated as a whole, so no write loses these fields.
func TrimJob(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		job.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: job.Spec.Template.Spec.RestartPolicy}}
		job.Spec.PodFailurePolicy, job.Spec.SuccessPolicy, job.Spec.Selector = nil, nil, nil
		job.Status.CompletedIndexes, job.Status.FailedIndexes, job.Status.UncountedTerminatedPods = "", nil, nil
	}
	return TrimObject(object)
}

// maxNetworkPolicyBytes is more memory than any NetworkPolicy of the operator needs.
const maxNetworkPolicyBytes = 64 << 10

// TrimNetworkPolicy is a cache transform that replaces the rules of a too large NetworkPolicy by rules that allow everything, so
// that a tenant cannot fill the operator's memory, and decisions assume no restriction that does not exist.
func TrimNetworkPolicy(object any) (any, error) {
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return object, nil
	}
	if decision.MemoryOf(policy.Spec) > maxNetworkPolicyBytes {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
		if decision.MemoryOf(policy.Spec.PodSelector) > LargeBytes {
			policy.Spec.PodSelector = metav1.LabelSelector{}
		}
	}
	return TrimObject(policy)
}
