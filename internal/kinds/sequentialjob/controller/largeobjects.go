package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// maxCachedBytes is the size of a SequentialJob above which the cache keeps only a few KiB of it. A namespace can hold
// any number of SequentialJobs of more than 1 MB, and 150 of them would fill the operator's memory.
const maxCachedBytes = 16 << 10

// maxAnnotationBytes exceeds the size of valid annotations that controllers read.
const maxAnnotationBytes = 1 << 10

// TrimSequentialJob is a cache transform that removes the parts of a SequentialJob that no decision reads, and most of
// a large SequentialJob, which the reconciler reads from the API server.
func TrimSequentialJob(object any) (any, error) {
	sj, ok := object.(*v1alpha1.SequentialJob)
	if !ok {
		return object, nil
	}
	delete(sj.Annotations, corev1.LastAppliedConfigAnnotation) // as large as the spec
	if isLarge(sj) {
		sj.Annotations = trimAnnotations(sj.Annotations)
		sj.Spec = v1alpha1.SequentialJobSpec{ManagedBy: sj.Spec.ManagedBy}
		sj.Status.Steps = nil
	}
	return kube.TrimObject(sj)
}

// trimAnnotations keeps the annotations that controllers observe.
func trimAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{v1alpha1.AnnotationApproval, v1alpha1.AnnotationScheduledTime} {
		value, found := annotations[key]
		if !found {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value[:min(len(value), maxAnnotationBytes)]
	}
	return kept
}

// isTrimmed reports whether the cache removed most of the object: a SequentialJob has at least one step.
func isTrimmed(sj *v1alpha1.SequentialJob) bool { return len(sj.Spec.Containers) == 0 }

// isLarge reports whether a SequentialJob is too large for the cache. It adds the sizes of variable parts in the
// protobuf encoding, which are fast to compute and about as large as JSON.
func isLarge(sj *v1alpha1.SequentialJob) bool {
	size := 0
	for i := range sj.Spec.Containers {
		step := &sj.Spec.Containers[i]
		size += step.Size() + sizeOfOptions(step.Options())
	}
	if sj.Spec.Template != nil {
		size += sj.Spec.Template.Size()
	}
	if metadata := sj.Spec.JobMetadata; metadata != nil {
		size += sizeOf(metadata.Labels) + sizeOf(metadata.Annotations)
	}
	for i := range sj.Status.Steps {
		const fixedFields = 400 // times, names, hashes and UIDs
		size += fixedFields + len(sj.Status.Steps[i].Message) + len(sj.Status.Steps[i].Output)
	}
	return size+sizeOf(sj.Annotations) > maxCachedBytes
}

func sizeOfOptions(options *v1alpha1.StepOptions) int {
	size := 0
	if options.PodFailurePolicy != nil {
		size += options.PodFailurePolicy.Size()
	}
	if options.SuccessPolicy != nil {
		size += options.SuccessPolicy.Size()
	}
	if options.PodTemplate != nil {
		size += len(options.PodTemplate.Raw)
	}
	return size
}

func sizeOf(set map[string]string) int {
	size := 0
	for key, value := range set {
		size += len(key) + len(value)
	}
	return size
}
