package sequence

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// JobFingerprint returns a hash of everything in a Job except its name, its owner and the
// operator's marks of them. If the API server accepts a Job in a dry run, it accepts a Job with
// the same fingerprint as well.
func JobFingerprint(job *batchv1.Job) string {
	anonymous := job.DeepCopy()
	for _, labels := range []map[string]string{anonymous.Labels, anonymous.Spec.Template.Labels} {
		delete(labels, v1alpha1.LabelSequentialJob)
		delete(labels, v1alpha1.LabelSequentialJobUID)
	}
	for _, annotation := range []string{
		v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration,
		v1alpha1.AnnotationSpecHash, v1alpha1.AnnotationTemplateHash,
	} {
		delete(anonymous.Annotations, annotation)
	}
	return anonymous.Namespace + "/" + contentHash([]any{anonymous.Labels, anonymous.Annotations, anonymous.Spec})
}
