package logs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// containerLog is the log of one container, as it was started once.
type containerLog struct {
	owner, podName, container string
	// ownerIsAttempt says that step is the name of an attempt at a session's run.
	ownerIsAttempt bool
	// restartCount is how often the container had been started before.
	restartCount int32
	// previous asks for the log of the start before the last.
	previous bool
	// label stands before each line.
	label string
}

// describeOwner log it is.
func (s containerLog) describeOwner() string {
	if s.ownerIsAttempt {
		return "attempt " + s.owner
	}
	return "step " + s.owner
}

// podsOfStep are the Pods of a step's Job, oldest first. With all they are those of all its
// Jobs, of earlier attempts and runs too.
func podsOfStep(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod, all bool) []*corev1.Pod {
	record := findStepStatus(sj, step)
	var found []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[v1alpha1.LabelStep] == step && pod.Labels[v1alpha1.LabelSequentialJobUID] == string(sj.UID) && (all || belongsToStepJob(sj, record, pod)) {
			found = append(found, pod)
		}
	}
	slices.SortStableFunc(found, compareByAge)
	return found
}

// compareByAge puts the oldest first.
func compareByAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// belongsToStepJob reports whether the Pod belongs to the Job that is recorded of the step. The very
// first step may run before there is a status; then no other can have run.
func belongsToStepJob(sj *v1alpha1.SequentialJob, record *v1alpha1.StepStatus, pod *corev1.Pod) bool {
	job := metav1.GetControllerOf(pod)
	switch {
	case job == nil:
		return false
	case sj.Status.Run == 0:
		return true
	case record.JobUID != "":
		return job.UID == record.JobUID
	default:
		return record.JobName != "" && job.Name == record.JobName
	}
}

// containerLogsOf are the logs that the Pods of one step have, in the order in which they began.
// Several Pods are told apart by what their names end in.
func containerLogsOf(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod, all bool) []containerLog {
	several := len(pods) > 1 || mayHaveMultiplePods(sj, step)
	var found []containerLog
	for _, pod := range pods {
		label := step
		if several {
			label += "/" + podNameSuffix(pod)
		}
		for _, status := range containerStatuses(pod) {
			if !hasContainerLog(status) {
				continue
			}
			s := containerLog{owner: step, podName: pod.Name, container: status.Name, restartCount: status.RestartCount, label: label}
			if status.Name != step {
				s.label += ":" + status.Name
			}
			if all && status.RestartCount > 0 {
				before := s
				before.restartCount, before.previous = s.restartCount-1, true
				found = append(found, before)
			}
			found = append(found, s)
		}
	}
	return found
}

// mayHaveMultiplePods reports whether the step can come to have more Pods than one, so that its
// lines look alike from the first to the last.
func mayHaveMultiplePods(sj *v1alpha1.SequentialJob, name string) bool {
	steps := slices.Concat(sj.Spec.Containers, sj.Spec.Finally)
	at := slices.IndexFunc(steps, func(s v1alpha1.Step) bool { return s.Name == name })
	if at < 0 {
		return false
	}
	options := steps[at].Options()
	return exceedsLimit(0, options.BackoffLimit) || exceedsLimit(1, options.Parallelism) || exceedsLimit(1, options.Completions)
}

func exceedsLimit(limit int32, number *int32) bool { return number != nil && *number > limit }

// podNameSuffix is the Pod's name without its Job's.
func podNameSuffix(pod *corev1.Pod) string {
	return strings.TrimPrefix(strings.TrimPrefix(pod.Name, pod.Labels[batchv1.JobNameLabel]), "-")
}

// containerStatuses are those of the Pod's containers in the order in which they are started.
func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// hasContainerLog reports whether the container was ever started.
func hasContainerLog(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

// isContainerLogComplete reports whether the source's log is complete: its container has ended, been
// started anew, or is no more.
func isContainerLogComplete(pod *corev1.Pod, s containerLog) bool {
	for _, status := range containerStatuses(pod) {
		if status.Name == s.container {
			return status.State.Running == nil || status.RestartCount != s.restartCount
		}
	}
	return true
}

// missingLogReason says why a step that has begun has no log, empty if it need not have one.
func missingLogReason(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod) string {
	record := findStepStatus(sj, step)
	if len(pods) > 0 {
		return fmt.Sprintf("step %s has no log: no container of Pod %s has started%s", step, pods[len(pods)-1].Name, waitingReason(pods[len(pods)-1]))
	}
	switch {
	case !hasStarted(record.Phase):
		return ""
	case record.JobName == "":
		return fmt.Sprintf("step %s has no log: no Job was made for it", step)
	default:
		return fmt.Sprintf("step %s has no log any more: there is no Pod of its Job %s", step, record.JobName)
	}
}

// waitingReason is what keeps the Pod's containers from starting, as far as it says so.
func waitingReason(pod *corev1.Pod) string {
	for _, status := range containerStatuses(pod) {
		if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
			return ": " + status.State.Waiting.Reason
		}
	}
	return ""
}

// findStepStatus is what the status says of a step, nothing if it does not know it yet.
func findStepStatus(sj *v1alpha1.SequentialJob, step string) *v1alpha1.StepStatus {
	for i := range sj.Status.Steps {
		if sj.Status.Steps[i].Name == step {
			return &sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepPending}
}

func hasStarted(phase v1alpha1.StepPhase) bool {
	return phase != v1alpha1.StepPending && phase != v1alpha1.StepSkipped
}

// isStepFinished reports whether nothing more will come of the step in this run.
func isStepFinished(phase v1alpha1.StepPhase) bool {
	return phase == v1alpha1.StepSucceeded || phase == v1alpha1.StepFailed || phase == v1alpha1.StepSkipped
}
