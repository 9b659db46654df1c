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

// source is the log of one container, as it was started once.
type source struct {
	step, pod, container string
	// attempt says that step is the name of an attempt at a session's run.
	attempt bool
	// restarts is how often the container had been started before.
	restarts int32
	// previous asks for the log of the start before the last.
	previous bool
	// label stands before each line.
	label string
}

// whose log it is.
func (s source) whose() string {
	if s.attempt {
		return "attempt " + s.step
	}
	return "step " + s.step
}

// podsOf are the Pods of a step's Job, oldest first. With all they are those of all its
// Jobs, of earlier attempts and runs too.
func podsOf(sj *v1alpha1.SequentialJob, step string, pods []corev1.Pod, all bool) []*corev1.Pod {
	record := recordOf(sj, step)
	var found []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[v1alpha1.LabelStep] == step && pod.Labels[v1alpha1.LabelSequentialJobUID] == string(sj.UID) && (all || isOf(sj, record, pod)) {
			found = append(found, pod)
		}
	}
	slices.SortStableFunc(found, byAge)
	return found
}

// byAge puts the oldest first.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// isOf reports whether the Pod belongs to the Job that is recorded of the step. The very
// first step may run before there is a status; then no other can have run.
func isOf(sj *v1alpha1.SequentialJob, record *v1alpha1.StepStatus, pod *corev1.Pod) bool {
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

// sources are the logs that the Pods of one step have, in the order in which they began.
// Several Pods are told apart by what their names end in.
func sources(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod, all bool) []source {
	several := len(pods) > 1 || mayHaveSeveral(sj, step)
	var found []source
	for _, pod := range pods {
		label := step
		if several {
			label += "/" + suffix(pod)
		}
		for _, status := range statuses(pod) {
			if !hasLog(status) {
				continue
			}
			s := source{step: step, pod: pod.Name, container: status.Name, restarts: status.RestartCount, label: label}
			if status.Name != step {
				s.label += ":" + status.Name
			}
			if all && status.RestartCount > 0 {
				before := s
				before.restarts, before.previous = s.restarts-1, true
				found = append(found, before)
			}
			found = append(found, s)
		}
	}
	return found
}

// mayHaveSeveral reports whether the step can come to have more Pods than one, so that its
// lines look alike from the first to the last.
func mayHaveSeveral(sj *v1alpha1.SequentialJob, name string) bool {
	steps := slices.Concat(sj.Spec.Containers, sj.Spec.Finally)
	at := slices.IndexFunc(steps, func(s v1alpha1.Step) bool { return s.Name == name })
	if at < 0 {
		return false
	}
	options := steps[at].Options()
	return moreThan(0, options.BackoffLimit) || moreThan(1, options.Parallelism) || moreThan(1, options.Completions)
}

func moreThan(limit int32, number *int32) bool { return number != nil && *number > limit }

// suffix is the Pod's name without its Job's.
func suffix(pod *corev1.Pod) string {
	return strings.TrimPrefix(strings.TrimPrefix(pod.Name, pod.Labels[batchv1.JobNameLabel]), "-")
}

// statuses are those of the Pod's containers in the order in which they are started.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// hasLog reports whether the container was ever started.
func hasLog(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

// stopped reports whether the source's log is complete: its container has ended, been
// started anew, or is no more.
func stopped(pod *corev1.Pod, s source) bool {
	for _, status := range statuses(pod) {
		if status.Name == s.container {
			return status.State.Running == nil || status.RestartCount != s.restarts
		}
	}
	return true
}

// absence says why a step that has begun has no log, empty if it need not have one.
func absence(sj *v1alpha1.SequentialJob, step string, pods []*corev1.Pod) string {
	record := recordOf(sj, step)
	if len(pods) > 0 {
		return fmt.Sprintf("step %s has no log: no container of Pod %s has started%s", step, pods[len(pods)-1].Name, waiting(pods[len(pods)-1]))
	}
	switch {
	case !begun(record.Phase):
		return ""
	case record.JobName == "":
		return fmt.Sprintf("step %s has no log: no Job was made for it", step)
	default:
		return fmt.Sprintf("step %s has no log any more: there is no Pod of its Job %s", step, record.JobName)
	}
}

// waiting is what keeps the Pod's containers from starting, as far as it says so.
func waiting(pod *corev1.Pod) string {
	for _, status := range statuses(pod) {
		if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
			return ": " + status.State.Waiting.Reason
		}
	}
	return ""
}

// recordOf is what the status says of a step, nothing if it does not know it yet.
func recordOf(sj *v1alpha1.SequentialJob, step string) *v1alpha1.StepStatus {
	for i := range sj.Status.Steps {
		if sj.Status.Steps[i].Name == step {
			return &sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepPending}
}

func begun(phase v1alpha1.StepPhase) bool {
	return phase != v1alpha1.StepPending && phase != v1alpha1.StepSkipped
}

// over reports whether nothing more will come of the step in this run.
func over(phase v1alpha1.StepPhase) bool {
	return phase == v1alpha1.StepSucceeded || phase == v1alpha1.StepFailed || phase == v1alpha1.StepSkipped
}
