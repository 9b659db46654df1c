package sequentialjob

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// IsFinished reports whether the run has completed or failed.
func IsFinished(status *v1alpha1.SequentialJobStatus) bool { return status.CompletionTime != nil }

// isActive reports whether a step with this phase has started and not ended.
func isActive(phase v1alpha1.StepPhase) bool {
	switch phase {
	case v1alpha1.StepStarting, v1alpha1.StepQueued, v1alpha1.StepRunning, v1alpha1.StepSuspending, v1alpha1.StepSuspended, v1alpha1.StepStopping:
		return true
	default:
		return false
	}
}

// canStart reports whether a step with this phase waits for its first or next attempt.
func canStart(phase v1alpha1.StepPhase) bool {
	switch phase {
	case v1alpha1.StepPending, v1alpha1.StepLost, v1alpha1.StepInterrupted, v1alpha1.StepRetrying:
		return true
	default:
		return false
	}
}

func activeStep(steps []v1alpha1.StepStatus) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool { return isActive(step.Phase) })
}

// nextStep returns the first step that waits to start, or nil.
func nextStep(steps []v1alpha1.StepStatus) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool { return canStart(step.Phase) })
}

// failedStep returns the first step whose failure fails the run, or nil.
func failedStep(steps []v1alpha1.StepStatus) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool {
		return step.Phase == v1alpha1.StepFailed && !step.Tolerated
	})
}

func findStep(steps []v1alpha1.StepStatus, name string) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool { return step.Name == name })
}

func findStepWhere(steps []v1alpha1.StepStatus, matches func(*v1alpha1.StepStatus) bool) *v1alpha1.StepStatus {
	for i := range steps {
		if matches(&steps[i]) {
			return &steps[i]
		}
	}
	return nil
}

// findStepSpec returns the step with this name in the spec; nil if it was removed.
func findStepSpec(spec *v1alpha1.SequentialJobSpec, name string) *v1alpha1.Step {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return nil
}

// IsFinally reports whether the spec has a step with this name and the option finally.
func IsFinally(spec *v1alpha1.SequentialJobSpec, name string) bool {
	step := findStepSpec(spec, name)
	return step != nil && step.Options().Finally
}

// withoutFinally returns the steps before those with the option finally.
func withoutFinally(spec *v1alpha1.SequentialJobSpec) []v1alpha1.Step {
	at := slices.IndexFunc(spec.Containers, func(step v1alpha1.Step) bool { return step.Options().Finally })
	if at < 0 {
		return spec.Containers
	}
	return spec.Containers[:at]
}

// skipWaitingSteps skips the steps that wait to start, except those that keeps selects. A step that waits for its next
// attempt fails.
func skipWaitingSteps(steps []v1alpha1.StepStatus, reason string, keeps func(name string) bool) {
	for i := range steps {
		switch step := &steps[i]; {
		case !canStart(step.Phase) || keeps(step.Name):
		case step.Phase == v1alpha1.StepRetrying:
			step.Phase, step.NextAttemptTime = v1alpha1.StepFailed, nil // with the reason of its last attempt
		default:
			step.Phase, step.Reason, step.Message = v1alpha1.StepSkipped, reason, ""
		}
	}
}

// isSuspendedBySpec reports whether the step's Job was suspended because of spec.suspend, and not by another client,
// which could resume it at any time.
func isSuspendedBySpec(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepSuspended && step.Reason != v1alpha1.ReasonJobSuspended
}

func hasRunStarted(status *v1alpha1.SequentialJobStatus) bool {
	return slices.ContainsFunc(status.Steps, func(step v1alpha1.StepStatus) bool { return step.Run == status.Run })
}

// isCompleted reports whether the run finished, every wanted step ran, and no failure failed the run.
func isCompleted(status *v1alpha1.SequentialJobStatus) bool {
	skipped := func(step v1alpha1.StepStatus) bool { return step.Phase == v1alpha1.StepSkipped && !isUnwanted(&step) }
	return IsFinished(status) && failedStep(status.Steps) == nil && !slices.ContainsFunc(status.Steps, skipped)
}

// retryingStep returns the step that waits for its next attempt after a failure, or nil.
func retryingStep(steps []v1alpha1.StepStatus) *v1alpha1.StepStatus {
	return findStepWhere(steps, func(step *v1alpha1.StepStatus) bool { return step.Phase == v1alpha1.StepRetrying })
}

func retryMessage(step *v1alpha1.StepStatus) string {
	at := ""
	if step.NextAttemptTime != nil {
		at = " at " + step.NextAttemptTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("attempt %d of step %q failed: %s; attempt %d starts%s",
		step.Attempt, step.Name, decision.FormatReason(step.Reason, step.Message), step.Attempt+1, at)
}

// queueLabel is the label with which Kueue manages a Job.
const queueLabel = "kueue.x-k8s.io/queue-name"

// findJobNamed returns the Job with this name, or nil.
func findJobNamed(jobs []*batchv1.Job, name string) *batchv1.Job {
	if at := slices.IndexFunc(jobs, func(job *batchv1.Job) bool { return job.Name == name }); at >= 0 {
		return jobs[at]
	}
	return nil
}

// IsTerminal reports whether the Job ended and all its Pods have stopped.
func IsTerminal(job *batchv1.Job) bool { return decision.FindEndCondition(job) != nil }

// IsRelevantUpdate reports whether a change of a Job can affect its SequentialJob. Most reports of a running Job do
// not.
func IsRelevantUpdate(before, after *batchv1.Job) bool {
	switch {
	case IsTerminal(after) != IsTerminal(before),
		after.DeletionTimestamp.IsZero() != before.DeletionTimestamp.IsZero(),
		isSuspended(after) != isSuspended(before),
		after.Status.Failed != before.Status.Failed, // the next Pod may not start
		hasStoppedPods(after) != hasStoppedPods(before):
		return true
	default: // the start deadline counts from the Job's start time
		return jobOptions(after).StartDeadlineSeconds != nil && !after.Status.StartTime.Equal(before.Status.StartTime)
	}
}

func isSuspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

// isQueueManaged reports whether a queue such as Kueue, or another controller, decides when the Job may run.
func isQueueManaged(job *batchv1.Job) bool {
	return job.Labels[queueLabel] != "" || hasOtherController(job)
}

// hasOtherController reports whether a controller other than that of Kubernetes runs the Job.
func hasOtherController(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName
}

// restartsContainers reports whether the Pods of a Job restart their containers after a failure.
func restartsContainers(job *batchv1.Job) bool {
	return job.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// hasOnePod reports whether the Job needs one Pod.
func hasOnePod(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.Completions, 1) == 1 && ptr.Deref(job.Spec.Parallelism, 1) == 1
}

// hasStartedPod reports whether the Job's counters prove that the step's container started in a Pod. A started Pod with a
// readiness probe is not ready at once, so a false result proves nothing.
func hasStartedPod(job *batchv1.Job) bool {
	return job.Status.Succeeded > 0 || ptr.Deref(job.Status.Ready, 0) > 0
}

// hasStoppedPods reports whether a suspended Job has no Pods left.
func hasStoppedPods(job *batchv1.Job) bool {
	isMarked := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
	return isMarked && job.Status.Active == 0 && ptr.Deref(job.Status.Terminating, 0) == 0
}
