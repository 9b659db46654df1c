package sequence

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Shape is a hash of all there is to a Job but whose it is. What the API server would
// take for one SequentialJob, it would take for another in the same namespace.
func Shape(job *batchv1.Job) string {
	shape := job.DeepCopy()
	for _, labels := range []map[string]string{shape.Labels, shape.Spec.Template.Labels} {
		delete(labels, v1alpha1.LabelSequentialJob)
		delete(labels, v1alpha1.LabelSequentialJobUID)
	}
	for _, annotation := range []string{
		v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration,
		v1alpha1.AnnotationSpecHash, v1alpha1.AnnotationTemplateHash,
	} {
		delete(shape.Annotations, annotation)
	}
	return shape.Namespace + "/" + hashOf([]any{shape.Labels, shape.Annotations, shape.Spec})
}
