package logs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// containerLog is the log of one start of a container.
type containerLog struct {
	// owner is a step, or the attempt of a session's run.
	owner, podName, container string
	ownerIsAttempt            bool
	// restartCount is the number of earlier starts.
	restartCount int32
	// previous selects the start before the last.
	previous bool
	label    string
}

// withoutLabel identifies the log: the label changes when a step gets a second Pod.
func (l containerLog) withoutLabel() containerLog {
	l.label = ""
	return l
}

// podsOfStep returns the Pods of a step's Job, the oldest first. With allAttempts it includes Pods of earlier attempts and runs.
func podsOfStep(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod, allAttempts bool) []*corev1.Pod {
	status := findStepStatus(sj, step)
	var found []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[v1alpha1.LabelStep] == step && pod.Labels[v1alpha1.LabelSequentialJobUID] == string(sj.UID) && (allAttempts || belongsToStepJob(sj, status, pod)) {
			found = append(found, pod)
		}
	}
	slices.SortStableFunc(found, compareByAge)
	return found
}

func compareByAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// belongsToStepJob reports whether the Pod's Job is the Job in the step's status. The first step of the first run can have Pods
// before it has a status.
func belongsToStepJob(sj *v1alpha1.SequentialJob, status *v1alpha1.StepStatus, pod *corev1.Pod) bool {
	job := metav1.GetControllerOf(pod)
	switch {
	case job == nil:
		return false
	case sj.Status.Run == 0:
		return true
	case status.JobUID != "":
		return job.UID == status.JobUID
	default:
		return status.JobName != "" && job.Name == status.JobName
	}
}

// containerLogsOf returns the logs of a step's Pods in the order in which they started. If the step can have several Pods, the labels
// contain the end of the Pod's name.
func containerLogsOf(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod, allAttempts bool) []containerLog {
	labelPods := len(pods) > 1 || mayHaveMultiplePods(sj, step)
	var found []containerLog
	for _, pod := range pods {
		label := step
		if labelPods {
			withoutJob := strings.TrimPrefix(pod.Name, pod.Labels[batchv1.JobNameLabel])
			label += "/" + strings.TrimPrefix(withoutJob, "-")
		}
		for _, status := range containerStatuses(pod) {
			if !hasContainerLog(status) {
				continue
			}
			l := containerLog{owner: step, podName: pod.Name, container: status.Name, restartCount: status.RestartCount, label: label}
			if status.Name != step {
				l.label += ":" + status.Name
			}
			if allAttempts && status.RestartCount > 0 {
				before := l
				before.restartCount, before.previous = l.restartCount-1, true
				found = append(found, before)
			}
			found = append(found, l)
		}
	}
	return found
}

// mayHaveMultiplePods reports whether the step's Job can create several Pods, so that the labels do not change when the second Pod
// appears.
func mayHaveMultiplePods(sj *v1alpha1.SequentialJob, name string) bool {
	index := slices.IndexFunc(sj.Spec.Containers, func(s v1alpha1.Step) bool { return s.Name == name })
	if index < 0 {
		return false
	}
	options := sj.Spec.Containers[index].Options()
	return ptr.Deref(options.BackoffLimit, 0) > 0 || ptr.Deref(options.Parallelism, 1) > 1 || ptr.Deref(options.Completions, 1) > 1
}

// containerStatuses returns the statuses of the Pod's containers in starting order.
func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// hasContainerLog reports whether the container has ever started.
func hasContainerLog(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

// missingLogReason explains why a started step has no log; empty for a step that has not started.
func missingLogReason(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod) string {
	status := findStepStatus(sj, step)
	if len(pods) > 0 {
		last := pods[len(pods)-1]
		return fmt.Sprintf("step %s has no log: no container of Pod %s has started%s", step, last.Name, waitingReason(last))
	}
	switch {
	case status.Phase == v1alpha1.StepPending || status.Phase == v1alpha1.StepSkipped:
		return ""
	case status.JobName == "":
		return fmt.Sprintf("step %s has no log: no Job was created for it", step)
	default:
		return fmt.Sprintf("step %s has no log: its Job %s no longer has a Pod", step, status.JobName)
	}
}

// waitingReason returns the reason why a container of the Pod waits; empty without a reason.
func waitingReason(pod *corev1.Pod) string {
	for _, status := range containerStatuses(pod) {
		if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
			return ": " + status.State.Waiting.Reason
		}
	}
	return ""
}

// findStepStatus returns the status of a step; pending without a status.
func findStepStatus(sj *v1alpha1.SequentialJob, step string) *v1alpha1.StepStatus {
	for i := range sj.Status.Steps {
		if sj.Status.Steps[i].Name == step {
			return &sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepPending}
}

// isStepFinished reports whether the step creates no more Pods in this run.
func isStepFinished(phase v1alpha1.StepPhase) bool {
	return phase == v1alpha1.StepSucceeded || phase == v1alpha1.StepFailed || phase == v1alpha1.StepSkipped
}
