package sequentialjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// startReportDelay is the age of a Job, and of a running container, at which the step's phase is recorded, so that
	// a shorter step costs no further write.
	startReportDelay = time.Second
	// eventsDelay is the age of a Job without Pods, or of a Pod that its node prepares, at which the events that name
	// the cause are read. They are read again after a quarter of the age, within the limits below.
	eventsDelay    = 3 * time.Second
	minEventsRetry = 2 * time.Second
	maxEventsRetry = time.Minute
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
	"CrashLoopBackOff":           {v1alpha1.ReasonCrashLoop, "see the container's log"},
}

const (
	imageAdvice  = "check the image's name, the pull Secret and the registry"
	configAdvice = "create what is missing, or correct the step"
)

// observeStart records whether the Pods of an unfinished Job run, and the problem if they do not. It may set a question
// instead.
func (e *evaluation) observeStart(step *v1alpha1.StepStatus, job *batchv1.Job) {
	if !e.timer.HasReached(job.CreationTimestamp.Add(startReportDelay)) {
		return
	}
	pods := podsOf(e.Pods, job.UID)
	left := findLeftover(pods, job)
	switch since := runningSince(withoutDeleted(pods)); {
	case isSuspended(job):
		e.observeSuspendedJob(step, job)
	case left != nil && left.isDue(&e.timer):
		e.recordJob(step, job)
		e.reportBlocked(step, v1alpha1.StepRunning, left.problem(step.Name))
	case since != nil:
		isReported := step.Phase == v1alpha1.StepRunning && step.Reason != v1alpha1.ReasonContainerStillRuns
		if e.timer.HasReached(since.Add(startReportDelay)) && !isReported {
			e.recordJob(step, job)
			e.reportBlocked(step, v1alpha1.StepRunning, nil)
		}
	default:
		problem := e.findStartProblem(step, job, pods)
		if e.decision.Question != nil || (problem == nil && step.Phase == v1alpha1.StepRunning) {
			return // the Pod may have ended a moment ago
		}
		e.reportBlocked(step, v1alpha1.StepStarting, problem)
	}
}

// observeSuspendedJob records that a queue or another client suspended the step's Job.
func (e *evaluation) observeSuspendedJob(step *v1alpha1.StepStatus, job *batchv1.Job) {
	switch queue := job.Labels[queueLabel]; {
	case job.Annotations[v1alpha1.AnnotationSuspended] != "":
		return // this operator resumes it
	case !isQueueManaged(job):
		e.reportBlocked(step, v1alpha1.StepSuspended, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonJobSuspended, Message: "another client suspended Job " + job.Name}, "set its spec.suspend to false",
		})
	case queue == "":
		e.reportBlocked(step, v1alpha1.StepQueued, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + job.Name + " waits for " + ptr.Deref(job.Spec.ManagedBy, "its manager")}, "see the events of the Job",
		})
	default:
		e.reportBlocked(step, v1alpha1.StepQueued, &startProblem{
			decision.Problem{Reason: v1alpha1.ReasonQueued, Message: "Job " + job.Name + " waits in queue " + queue}, "see the events of its Workload",
		})
	}
	e.recordJob(step, job)
}

// reportBlocked records the phase of a step, and the problem that keeps its Pods from running; nil for none.
func (e *evaluation) reportBlocked(step *v1alpha1.StepStatus, phase v1alpha1.StepPhase, problem *startProblem) {
	step.Phase = phase
	switch {
	case problem == nil && step.Message != "":
		step.Reason, step.Message = "", ""
		return
	case problem == nil:
		return // a reason without a message is why there is another attempt
	}
	message := decision.TruncateMessage(problem.Message, maxMessageBytes)
	// The messages about an image that cannot be pulled alternate, and the first has the cause.
	if step.Reason != problem.Reason || !isRepeated(step.Message, message) {
		step.Reason, step.Message = problem.Reason, message
	}
	e.blocked = &decision.Problem{Reason: step.Reason, Message: fmt.Sprintf("step %q: %s; %s", step.Name, step.Message, problem.advice)}
}

// isRepeated reports whether the second message is about the same container, which waits in back-off.
func isRepeated(before, after string) bool {
	container, _, found := strings.Cut(after, ": ImagePullBackOff")
	return found && strings.HasPrefix(before, container+": ")
}

// findStartProblem returns the problem that keeps the Pods of a Job from running; nil if none is known. It may set a
// question instead.
func (e *evaluation) findStartProblem(step *v1alpha1.StepStatus, job *batchv1.Job, pods []*corev1.Pod) *startProblem {
	for _, pod := range pods {
		if problem := podProblem(pod); problem != nil {
			return problem
		}
	}
	for _, pod := range pods {
		if isBeingPrepared(pod) {
			return e.problemFromEvents(step, pod.UID, pod.CreationTimestamp.Time, v1alpha1.ReasonConfigError,
				"Pod "+pod.Name+" cannot be prepared by its node: ", configAdvice)
		}
	}
	if len(pods) > 0 || job.Status.Active > 0 {
		return nil
	}
	return e.problemFromEvents(step, job.UID, job.CreationTimestamp.Time, v1alpha1.ReasonPodNotCreated,
		"Job "+job.Name+" cannot create its Pod: ", "remove the cause, or correct the step")
}

// problemFromEvents returns a problem that only an event names. Events are read after eventsDelay, then less and less
// often.
func (e *evaluation) problemFromEvents(step *v1alpha1.StepStatus, uid types.UID, since time.Time, reason, prefix, advice string) *startProblem {
	if !e.timer.HasReached(since.Add(eventsDelay)) {
		return nil
	}
	message, read := e.Answers.Warnings[uid]
	if !read {
		e.decision.Question = &Question{WarningsOf: uid}
		return nil
	}
	e.timer.RequeueWithin(min(max(e.Now.Sub(since)/4, minEventsRetry), maxEventsRetry))
	switch {
	case message != "":
		message = prefix + message
	case step.Reason == reason:
		message = step.Message // the event has expired
	default:
		return nil
	}
	return &startProblem{decision.Problem{Reason: reason, Message: message}, advice}
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
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			message := fmt.Sprintf("Pod %s: %s", pod.Name, decision.FormatReason(c.Reason, c.Message))
			return &startProblem{decision.Problem{Reason: c.Reason, Message: message}, "add or free nodes and volumes, or correct the step"}
		}
	}
	return nil
}

// isBeingPrepared reports whether a node prepares the Pod's volumes and network, which takes a moment for every Pod.
// Images are pulled later.
func isBeingPrepared(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionFalse && pod.DeletionTimestamp.IsZero()
		}
	}
	return false
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

func podsOf(pods []*corev1.Pod, uid types.UID) []*corev1.Pod {
	var owned []*corev1.Pod
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.UID == uid {
			owned = append(owned, pod)
		}
	}
	return owned
}

// IsRelevantPodUpdate reports whether a change of a Pod can affect the phase or the message of its step. before is nil
// for a new Pod.
func IsRelevantPodUpdate(before, after *corev1.Pod) bool {
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
	return summarize(before) != summarize(after)
}
