package sequentialjob

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// waitingJobs returns the next Jobs of the steps that wait to start, or that may be corrected.
func waitingJobs(sj *v1alpha1.SequentialJob) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if stepSpec := findStepSpec(&sj.Spec, step.Name); stepSpec != nil && (canStart(step.Phase) || isCorrectable(step)) {
			jobs = append(jobs, stepJob(sj, stepSpec, sj.Status.Run, step.Attempt+1))
		}
	}
	return jobs
}

// FirstJobs returns the Jobs that a new SequentialJob creates, unless a step fails.
func FirstJobs(sj *v1alpha1.SequentialJob) []*batchv1.Job {
	first := sj.DeepCopy()
	first.Status = v1alpha1.SequentialJobStatus{
		RunStatus: v1alpha1.RunStatus{Run: 1}, Steps: mergeSteps(&first.Spec, nil), Parameters: runParameters(&first.Spec, nil),
	}
	return waitingJobs(first)
}

// PodOf returns the Pod that the Job controller would create for a Job that the API server returned, with the label and
// the owner without which the operator may not create it: see the policy yardmaster-own-objects.
func PodOf(job *batchv1.Job) *corev1.Pod {
	template := job.Spec.Template.DeepCopy()
	metav1.SetMetaDataLabel(&template.ObjectMeta, v1alpha1.LabelManagedBy, v1alpha1.ManagedByValue)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: job.Name + "-", Namespace: job.Namespace,
			Labels: template.Labels, Annotations: template.Annotations, OwnerReferences: job.OwnerReferences,
		},
		Spec: template.Spec,
	}
}

// IsHeldByQueue reports whether a Job was suspended when it was created, as queues such as Kueue do, or a queue manages
// it.
func IsHeldByQueue(job *batchv1.Job) bool { return isSuspended(job) || isQueueManaged(job) }

// Fingerprint identifies a Job without its name and owner: if the API server accepts a Job, it accepts others with the
// same fingerprint. Content and Metadata are separate, because the metadata of all steps of a SequentialJob is usually
// the same.
type Fingerprint struct {
	// Content of the Job and of its Pods.
	Content string
	// Metadata of the Job and of its Pods: labels and annotations.
	Metadata string
}

// FingerprintOf returns the fingerprint of the Job of a step.
func FingerprintOf(job *batchv1.Job) Fingerprint {
	spec := job.Spec.DeepCopy()
	spec.Template.ObjectMeta = metav1.ObjectMeta{}
	metadata := []any{
		userLabels(job.Labels), userAnnotations(job.Annotations),
		userLabels(job.Spec.Template.Labels), userAnnotations(job.Spec.Template.Annotations), job.Spec.Template.Finalizers,
	}
	return Fingerprint{
		Content:  "content/" + job.Namespace + "/" + contentHash([]any{spec, job.Annotations[v1alpha1.AnnotationStepOptions]}),
		Metadata: "metadata/" + job.Namespace + "/" + contentHash(metadata),
	}
}

// userLabels removes the labels that the operator derives from the names of the SequentialJob, its Schedule and the step.
func userLabels(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	for key, derivedFrom := range map[string]string{
		labelAppInstance: v1alpha1.LabelSequentialJob, labelAppPartOf: v1alpha1.LabelSequentialJob, labelAppComponent: v1alpha1.LabelStep,
	} {
		if labels[key] == labels[derivedFrom] {
			delete(labels, key)
		}
	}
	for _, key := range []string{v1alpha1.LabelSequentialJob, v1alpha1.LabelSequentialJobUID, v1alpha1.LabelSchedule, v1alpha1.LabelStep} {
		delete(labels, key)
	}
	return labels
}

func userAnnotations(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	for _, key := range []string{
		v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration, v1alpha1.AnnotationSpecHash, v1alpha1.AnnotationContentHash, v1alpha1.AnnotationStepOptions,
	} {
		delete(annotations, key)
	}
	return annotations
}
