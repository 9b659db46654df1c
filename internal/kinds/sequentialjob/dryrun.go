package sequentialjob

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// podKind is the kind of a refusal of a Pod.
const podKind = "Pod"

// admitRun decides whether steps of the run may be evaluated now. Before its first step, every Job
// is created in a dry run, and so is its Pod: a mistake in the last step is reported now, not in an
// hour. After a change of the spec during the run, or while it is suspended, those of the waiting
// steps are; a step that would be refused is reported, and the run continues until that step.
func (e *evaluation) admitRun() bool {
	mayStart := !hasRunStarted(&e.status) && !e.spec.Suspend
	isChanged := e.SequentialJob.Generation != e.SequentialJob.Status.ObservedGeneration
	switch {
	case isSpecRejected(&e.status) && mayStart:
		rejectRun(&e.status, e.now)
		return false
	case isSpecRejected(&e.status), !mayStart && !isChanged:
		return true // startNextStep starts nothing while suspended
	}
	jobs := waitingJobs(e.current())
	switch {
	case len(jobs) == 0:
		return true
	case mayStart && slices.ContainsFunc(jobs, e.hasForbiddenImage):
		return false
	case e.Answers.DryRun == nil:
		e.decision.Question = &Question{DryRun: jobs, FirstFollows: mayStart && e.startsUnconditionally(nextStep(e.status.Steps))}
		return false
	}
	return e.admitAfterDryRun(mayStart)
}

// startsUnconditionally reports whether a step starts as soon as its turn comes.
func (e *evaluation) startsUnconditionally(step *v1alpha1.StepStatus) bool {
	stepSpec := findStepSpec(e.spec, step.Name)
	return stepSpec != nil && !stepSpec.Options().SuspendBefore && stepSpec.Options().When == ""
}

// admitAfterDryRun decides with the result of the dry run, as admitRun does.
func (e *evaluation) admitAfterDryRun(mayStart bool) bool {
	refusals := e.Answers.DryRun.Refusals
	if permanent := findPermanentRefusal(refusals); permanent != nil {
		message := fmt.Sprintf("step %q: %s", permanent.Step, permanent.Message)
		e.setCondition(v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonStepInvalid, message))
		if mayStart {
			rejectRun(&e.status, e.now)
		}
		return !mayStart
	}
	e.setCondition(v1alpha1.ConditionSpecAccepted, decision.True(v1alpha1.ReasonAccepted, podRefusalMessage(refusals)))
	next := nextStep(e.status.Steps)
	for i := range refusals {
		if mayStart && e.blockedBy == nil && blocksRun(&refusals[i], next) {
			e.blockedBy = &refusals[i]
		}
	}
	return e.blockedBy == nil
}

// blocksRun reports whether a refusal keeps the run from starting: one of the next step, or one of the Pod of any
// step that is not expected to change by itself. A quota may have room for a later step, and an earlier step may
// create its ServiceAccount.
func blocksRun(refusal *decision.Refusal, next *v1alpha1.StepStatus) bool {
	return next != nil && refusal.Step == next.Name || refusal.Kind == podKind && refusal.Class == decision.PolicyDenied
}

// podRefusalMessage says which step's Pod was refused, empty for none.
func podRefusalMessage(refusals []decision.Refusal) string {
	for i := range refusals {
		if refusals[i].Kind == podKind {
			return fmt.Sprintf("step %q: %s", refusals[i].Step, podProblemMessage(&refusals[i]))
		}
	}
	return ""
}

func podProblemMessage(refusal *decision.Refusal) string {
	return "its Pod was refused in a dry run: " + refusal.Message
}

// waitingJobs returns the next Jobs of the steps that wait to start.
func waitingJobs(sj *v1alpha1.SequentialJob) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if stepSpec := findStepSpec(&sj.Spec, step.Name); stepSpec != nil && canStart(step.Phase) {
			jobs = append(jobs, stepJob(sj, stepSpec, sj.Status.Run, step.Attempt+1))
		}
	}
	return jobs
}

// findPermanentRefusal returns the first refusal that waiting cannot resolve, nil if there is
// none.
func findPermanentRefusal(refusals []decision.Refusal) *decision.Refusal {
	for i := range refusals {
		if !canRetry(&refusals[i]) {
			return &refusals[i]
		}
	}
	return nil
}

// PodOf returns the Pod that the Job controller would create for a Job that the API server returned, with the label and
// the owner of what the operator itself may create: see the policy yardmaster-own-objects.
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

// IsHeldByQueue reports whether a Job was suspended when it was created, as queues such as Kueue do, or is
// carried out by another controller.
func IsHeldByQueue(job *batchv1.Job) bool { return isSuspended(job) || isQueueManaged(job) }

// Fingerprint identifies what the API server decides about when it admits a Job, without the Job's name and owner.
// If it accepts a Job, it accepts others with the same fingerprint. Content and metadata are identified
// separately, because the metadata of all steps of a SequentialJob is usually the same.
type Fingerprint struct {
	// Content of the Job and of its Pods.
	Content string
	// Metadata of the Job and of its Pods: labels and annotations.
	Metadata string
}

// FingerprintOf returns the fingerprint of a step's Job.
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

// userLabels returns labels without those that the operator derives from the names of the SequentialJob and the step.
func userLabels(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	for key, derivedFrom := range map[string]string{
		labelAppInstance: v1alpha1.LabelSequentialJob, labelAppPartOf: v1alpha1.LabelSequentialJob, labelAppComponent: v1alpha1.LabelStep,
	} {
		if labels[key] == labels[derivedFrom] {
			delete(labels, key)
		}
	}
	for _, key := range []string{v1alpha1.LabelSequentialJob, v1alpha1.LabelSequentialJobUID, v1alpha1.LabelStep} {
		delete(labels, key)
	}
	return labels
}

// userAnnotations returns annotations without those of the operator.
func userAnnotations(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	for _, key := range []string{
		v1alpha1.AnnotationRun, v1alpha1.AnnotationGeneration, v1alpha1.AnnotationSpecHash,
		v1alpha1.AnnotationTemplateHash, v1alpha1.AnnotationStepOptions,
	} {
		delete(annotations, key)
	}
	return annotations
}
