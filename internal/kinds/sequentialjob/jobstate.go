package sequentialjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// queueLabel is the label with which Kueue manages a Job.
const queueLabel = "kueue.x-k8s.io/queue-name"

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
