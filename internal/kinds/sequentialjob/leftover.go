package sequentialjob

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// leftoverDelay is how long after the end of the step's container other containers run before they are reported or ended. Most
// end by themselves.
const leftoverDelay = 3 * time.Second

// leftover is a Pod that has not ended although the step's container has: others added regular containers to it.
type leftover struct {
	pod *corev1.Pod
	end *corev1.ContainerStateTerminated
}

// leftoverContainers returns the names of the regular containers that run although the step's container has ended. The
// kubelet stops native sidecars.
func leftoverContainers(pod *corev1.Pod) string {
	step := pod.Labels[v1alpha1.LabelStep]
	if terminatedState(pod, step) == nil || IsStopping(pod) {
		return ""
	}
	var running []string
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running != nil {
			running = append(running, status.Name)
		}
	}
	return strings.Join(running, ", ")
}

// findLeftover returns a Pod that only containers of others keep from ending, if that holds for all Pods of the Job that have not
// ended; nil otherwise.
func findLeftover(pods []*corev1.Pod, job *batchv1.Job) *leftover {
	var found *leftover
	for _, pod := range pods {
		end := terminatedState(pod, job.Labels[v1alpha1.LabelStep])
		if leftoverContainers(pod) == "" || end.ExitCode != 0 && restartsContainers(job) {
			return nil
		}
		found = &leftover{pod, end}
	}
	return found
}

// isDue reports whether other containers have run for long enough after the end of the step's container.
func (l *leftover) isDue(timer *decision.Timer) bool {
	return timer.HasReached(l.end.FinishedAt.Add(leftoverDelay))
}

func (l *leftover) problem(step string) *startProblem {
	running := leftoverContainers(l.pod)
	message := fmt.Sprintf("container %s exited with %d; container %s still runs", step, l.end.ExitCode, running)
	advice := "end it, make it a native sidecar, or set spec.template.endWithStep"
	return &startProblem{decision.Problem{Reason: v1alpha1.ReasonContainerStillRuns, Message: message}, advice}
}
