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

const podKind = "Pod"

// admitRun decides whether steps of the run may be evaluated now. Before the first step, all Jobs and their Pods are
// created in a dry run, so that a mistake in the last step is reported at once. The same happens with waiting steps
// after a change of the spec during the run or while it is suspended: a step that would be refused is reported, and the
// run continues until this step.
func (e *evaluation) admitRun() bool {
	for i := range e.status.Steps { // the last decision wrote refusals of Pods into the steps
		if step := &e.status.Steps[i]; step.Phase == v1alpha1.StepPending && step.Reason == v1alpha1.ReasonPodNotCreated {
			step.Reason, step.Message = "", ""
		}
	}
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
		var first *v1alpha1.Step
		if next := nextStep(e.status.Steps); next != nil {
			first = findStepSpec(e.spec, next.Name)
		}
		startsAtOnce := first != nil && !first.Options().RequireApproval && first.Options().When == ""
		e.decision.Question = &Question{DryRun: jobs, FirstFollows: mayStart && startsAtOnce}
		return false
	}
	return e.admitAfterDryRun(mayStart)
}

func (e *evaluation) admitAfterDryRun(mayStart bool) bool {
	refusals := e.Answers.DryRun.Refusals
	if at := slices.IndexFunc(refusals, func(r decision.Refusal) bool { return !canRetry(&r) }); at >= 0 {
		message := fmt.Sprintf("step %q: %s", refusals[at].Step, refusals[at].Message)
		e.setCondition(v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonStepInvalid, message))
		if mayStart {
			rejectRun(&e.status, e.now)
		}
		return !mayStart
	}
	warning := ""
	if at := slices.IndexFunc(refusals, func(r decision.Refusal) bool { return r.Kind == podKind }); at >= 0 {
		warning = fmt.Sprintf("step %q: %s", refusals[at].Step, podProblemMessage(&refusals[at]))
	}
	e.setCondition(v1alpha1.ConditionSpecAccepted, decision.True(v1alpha1.ReasonAccepted, warning))
	// A refusal keeps the run from starting if it is of the next step, or if a policy refuses the Pod of any step,
	// which does not change by itself. A quota may have room for a later step, and an earlier step may create its
	// ServiceAccount.
	next := nextStep(e.status.Steps)
	for i := range refusals {
		isOfNext := next != nil && refusals[i].Step == next.Name
		isLasting := refusals[i].Kind == podKind && refusals[i].Class == decision.PolicyDenied
		if mayStart && e.blockedBy == nil && (isOfNext || isLasting) {
			e.blockedBy = &refusals[i]
		}
	}
	return e.blockedBy == nil
}

func podProblemMessage(refusal *decision.Refusal) string {
	return "its Pod was refused in a dry run: " + refusal.Message
}

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
