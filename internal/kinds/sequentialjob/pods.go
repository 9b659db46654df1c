package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// eventsDelay is the age of a Job without Pods, or of a Pod that its node prepares, at which the events that name
	// the cause are read. They are read again after a quarter of the age, within the limits below.
	eventsDelay    = 3 * time.Second
	minEventsRetry = 2 * time.Second
	maxEventsRetry = time.Minute
	// minStable and maxStable limit how long a container that failed again and again must run to count as running: see isUnstable. They
	// are the shortest delay of the kubelet between two starts, and the time after which it forgets earlier failures.
	minStable = 10 * time.Second
	maxStable = 10 * time.Minute
)

// startProblem is a problem that keeps a step's Pod from running.
type startProblem struct {
	decision.Problem
	// advice is how to solve the problem.
	advice string
}

// waitingReasons has the reasons of waiting containers that do not start by themselves.
var waitingReasons = map[string]struct{ reason, advice string }{
	"ErrImagePull":               {v1alpha1.ReasonImagePull, imageAdvice},
	"ImagePullBackOff":           {v1alpha1.ReasonImagePull, imageAdvice},
	"InvalidImageName":           {v1alpha1.ReasonImagePull, imageAdvice},
	"ErrImageNeverPull":          {v1alpha1.ReasonImagePull, imageAdvice},
	"ImageInspectError":          {v1alpha1.ReasonImagePull, imageAdvice},
	"RegistryUnavailable":        {v1alpha1.ReasonImagePull, imageAdvice},
	"SignatureValidationFailed":  {v1alpha1.ReasonImagePull, imageAdvice},
	"CreateContainerConfigError": {v1alpha1.ReasonConfigError, configAdvice},
	"CreateContainerError":       {v1alpha1.ReasonConfigError, configAdvice},
	"RunContainerError":          {v1alpha1.ReasonConfigError, configAdvice},
	"CrashLoopBackOff":           {v1alpha1.ReasonCrashLoop, crashAdvice},
}

const (
	crashAdvice  = "see the container's log"
	imageAdvice  = "check the image's name, the pull Secret and the registry"
	configAdvice = "create what is missing, or correct the step"
)

// suspensionProblem returns who suspended a step's Job, and the phase of its step.
func suspensionProblem(job *batchv1.Job) (v1alpha1.StepPhase, *startProblem) {
	switch queue := job.Labels[queueLabel]; {
	case !isQueueManaged(job):
		return v1alpha1.StepSuspended, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonJobSuspended, Message: "another client suspended Job " + job.Name}, "set its spec.suspend to false",
		}
	case queue == "":
		return v1alpha1.StepQueued, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + job.Name + " waits for " + ptr.Deref(job.Spec.ManagedBy, "its manager")}, "see the events of the Job",
		}
	default:
		return v1alpha1.StepQueued, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + job.Name + " waits in queue " + queue}, "see the events of its Workload",
		}
	}
}

// explanation returns the explanation of the problem after an earlier one. The messages about an image that cannot be pulled
// alternate, and the first has the cause.
func (p *startProblem) explanation(earlier *v1alpha1.Explanation) v1alpha1.Explanation {
	message := decision.TruncateMessage(p.Message, maxMessageBytes)
	if container, _, waits := strings.Cut(message, ": ImagePullBackOff"); waits && earlier.Reason == p.Reason && strings.HasPrefix(earlier.Message, container+": ") {
		return *earlier
	}
	return v1alpha1.Explanation{Reason: p.Reason, Message: message}
}

// findStartProblem returns the problem that keeps the Pods of a Job from running; nil if none is known. reported is the last known
// problem. Problems that only an event names are looked for after eventsDelay, then less and less often.
func findStartProblem(f *facts, reported *v1alpha1.Explanation, job *batchv1.Job) (*startProblem, notes) {
	n, pods := f.newNotes(), podsOf(f, job)
	for _, pod := range pods {
		if problem := podProblem(pod); problem != nil {
			return problem, n
		}
	}
	if reported.Reason == v1alpha1.ReasonCrashLoop && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return isUnstable(pod, &n.timer) }) {
		return &startProblem{decision.Problem{Reason: reported.Reason, Message: reported.Message}, crashAdvice}, n
	}
	uid, since, reason, prefix, advice := job.UID, job.CreationTimestamp.Time, v1alpha1.ReasonPodNotCreated,
		"Job "+job.Name+" cannot create its Pod: ", "remove the cause, or correct the step"
	if at := slices.IndexFunc(pods, isBeingPrepared); at >= 0 {
		uid, since, reason = pods[at].UID, pods[at].CreationTimestamp.Time, v1alpha1.ReasonConfigError
		prefix, advice = "Pod "+pods[at].Name+" cannot be prepared by its node: ", configAdvice
	} else if len(pods) > 0 || job.Status.Active > 0 {
		return nil, n
	}
	if !n.timer.HasReached(since.Add(eventsDelay)) {
		return nil, n
	}
	message, read := f.Answers.Warnings[uid]
	if !read {
		n.question = &Question{WarningsOf: uid}
		return nil, n
	}
	n.timer.RequeueWithin(min(max(f.Now.Sub(since)/4, minEventsRetry), maxEventsRetry))
	switch {
	case message != "":
		message = prefix + message
	case reported.Reason == reason:
		message = reported.Message // the event has expired
	default:
		return nil, n
	}
	return &startProblem{decision.Problem{Reason: reason, Message: message}, advice}, n
}

// podProblem returns the problem that keeps a Pod from running; nil if it reports none.
func podProblem(pod *corev1.Pod) *startProblem {
	for _, status := range containerStatuses(pod) {
		waiting := status.State.Waiting
		if waiting == nil {
			continue
		}
		if known, found := waitingReasons[waiting.Reason]; found {
			message := fmt.Sprintf("Pod %s, container %s: %s", pod.Name, status.Name, decision.FormatReason(waiting.Reason, waiting.Message))
			return &startProblem{decision.Problem{Reason: known.reason, Message: message}, known.advice}
		}
	}
	if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse {
		message := fmt.Sprintf("Pod %s: %s", pod.Name, decision.FormatReason(c.Reason, c.Message))
		return &startProblem{decision.Problem{Reason: c.Reason, Message: message}, "add or free nodes and volumes, or correct the step"}
	}
	return nil
}

// isUnstable reports whether a container of the Pod failed, and has since not run for twice as long as before it failed.
func isUnstable(pod *corev1.Pod, timer *decision.Timer) bool {
	return slices.ContainsFunc(containerStatuses(pod), func(status corev1.ContainerStatus) bool {
		end := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
		switch {
		case end == nil || end.ExitCode == 0:
			return false
		case status.State.Running == nil:
			return true
		}
		stable := min(max(2*end.FinishedAt.Sub(end.StartedAt.Time), minStable), maxStable)
		return !timer.HasReached(status.State.Running.StartedAt.Add(stable))
	})
}

// isBeingPrepared reports whether a node prepares the Pod's volumes and network, which takes a moment for every Pod.
// Images are pulled later.
func isBeingPrepared(pod *corev1.Pod) bool {
	return podCondition(pod, corev1.PodReadyToStartContainers).Status == corev1.ConditionFalse && pod.DeletionTimestamp.IsZero()
}

// runningSince returns when the first container of a running Pod started; nil if no Pod runs. A Pod with a container
// that cannot start does not count, even if its sidecars run.
func runningSince(pods []*corev1.Pod) *metav1.Time {
	for _, pod := range pods {
		if podProblem(pod) != nil {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Running != nil {
				return &status.State.Running.StartedAt
			}
		}
	}
	return nil
}

// withoutDeleted returns the Pods that are not being deleted. A Pod that is being deleted does not prove that its Job
// runs: the Job may have been suspended.
func withoutDeleted(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// podsOf returns the Pods of a Job that have not ended.
func podsOf(f *facts, job *batchv1.Job) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.Pods), func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, job) })
}

// NewsOf reports whether a change of a Pod can affect the phase or the message of its step, and how much later if it is only
// that the Pod starts. before is nil for a new Pod.
func NewsOf(before, after *corev1.Pod) (isRelevant bool, delay time.Duration) {
	summarize := func(pod *corev1.Pod) [4]string {
		if pod == nil {
			return [4]string{}
		}
		var summary [4]string
		if problem := podProblem(pod); problem != nil {
			summary[0] = problem.Message
		}
		if runningSince([]*corev1.Pod{pod}) != nil {
			summary[1] = "running"
		}
		if isBeingPrepared(pod) {
			summary[2] = "being prepared"
		}
		summary[3] = leftoverContainers(pod)
		return summary
	}
	was, is := summarize(before), summarize(after)
	starts := is[1]+is[2] != "" && is[0] == was[0] && is[3] == was[3]
	if starts {
		delay = startReportDelay
	}
	return was != is, delay
}

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
	if containerStatus(pod, step).State.Terminated == nil || IsStopping(pod) {
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
		end := containerStatus(pod, job.Labels[v1alpha1.LabelStep]).State.Terminated
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

// result returns the output and the reason and message of a step whose Job is deleted because only containers of others run.
func (l *leftover) result(job *batchv1.Job, step string) (output string, result *decision.Problem) {
	if l.end.ExitCode != 0 {
		return "", &decision.Problem{Reason: batchv1.JobReasonBackoffLimitExceeded, Message: exitMessage(step, l.end)}
	}
	if jobOptions(job).Outputs {
		output, result = readOutput(job, l.pod, step)
	}
	return output, cmp.Or(result, &decision.Problem{Reason: v1alpha1.ReasonContainerEnded, Message: l.problem(step).Message})
}

func (l *leftover) problem(step string) *startProblem {
	running := leftoverContainers(l.pod)
	message := fmt.Sprintf("container %s exited with %d; container %s still runs", step, l.end.ExitCode, running)
	advice := "end it, make it a native sidecar, or set spec.template.endWithStep"
	return &startProblem{decision.Problem{Reason: v1alpha1.ReasonContainerStillRuns, Message: message}, advice}
}

const maxMessageBytes = 256

// hasStarted reports whether the step's own container started in the Pod. Init containers and sidecars do not count.
func hasStarted(pod *corev1.Pod, step string) bool {
	status := containerStatus(pod, step)
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// waitingMessage returns why the Pods have not started; empty if unknown.
func waitingMessage(pods []corev1.Pod) string {
	for i := range pods {
		for _, status := range containerStatuses(&pods[i]) {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
				return decision.FormatReason(waiting.Reason, waiting.Message)
			}
		}
		if scheduled := podCondition(&pods[i], corev1.PodScheduled); scheduled.Status == corev1.ConditionFalse {
			return decision.FormatReason(scheduled.Reason, scheduled.Message)
		}
		for _, status := range pods[i].Status.InitContainerStatuses {
			switch {
			case status.State.Running == nil || decision.HasPodEnded(&pods[i]):
			case !decision.IsSidecar(&pods[i], status.Name):
				return "init container " + status.Name + " has not ended"
			case !ptr.Deref(status.Started, false):
				return "sidecar " + status.Name + " has not started"
			}
		}
	}
	return ""
}

// failureMessage returns why the newest failed Pod failed, if not because of the step's container; empty if unknown.
func failureMessage(pods []corev1.Pod) string {
	pod := newestPod(pods, corev1.PodFailed)
	if pod == nil {
		return ""
	}
	for _, status := range containerStatuses(pod) {
		if terminated := status.State.Terminated; terminated != nil && terminated.ExitCode != 0 {
			return exitMessage(status.Name, terminated)
		}
	}
	return decision.FormatReason(pod.Status.Reason, pod.Status.Message) // evicted, preempted, or its node was lost
}

func exitMessage(container string, terminated *corev1.ContainerStateTerminated) string {
	message := fmt.Sprintf("container %s exited with code %d", container, terminated.ExitCode)
	if terminated.Reason != "" && terminated.Reason != "Error" {
		message += " (" + terminated.Reason + ")"
	}
	if detail := strings.TrimSpace(terminated.Message); detail != "" {
		message += ": " + detail
	}
	return message
}

// containerStatus returns the status of a container; the zero value without a status.
func containerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// podCondition returns a condition of a Pod; the zero value if the Pod has no such condition.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return pod.Status.Conditions[i]
		}
	}
	return corev1.PodCondition{}
}

func newestPod(pods []corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	var newest *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == phase && (newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			newest = pod
		}
	}
	return newest
}
