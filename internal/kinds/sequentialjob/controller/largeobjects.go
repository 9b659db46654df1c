package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSequentialJob is a cache transform.
var TrimSequentialJob = kube.TrimLarge(isLarge, func(sj *v1alpha1.SequentialJob) {
	sj.Spec = v1alpha1.SequentialJobSpec{ManagedBy: sj.Spec.ManagedBy}
	sj.Status.Steps = nil
})

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
		size += kube.SizeOf(metadata.Labels) + kube.SizeOf(metadata.Annotations)
	}
	for i := range sj.Status.Steps {
		const fixedFields = 400 // times, names, hashes and UIDs
		size += fixedFields + len(sj.Status.Steps[i].Message) + len(sj.Status.Steps[i].Output)
	}
	return size > kube.LargeBytes
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
