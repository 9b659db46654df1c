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
	if earlier.Reason == p.Reason && isRepeated(earlier.Message, message) {
		return *earlier
	}
	return v1alpha1.Explanation{Reason: p.Reason, Message: message}
}

// isRepeated reports whether the second message is about the same container, which waits in back-off.
func isRepeated(before, after string) bool {
	container, _, found := strings.Cut(after, ": ImagePullBackOff")
	return found && strings.HasPrefix(before, container+": ")
}

// findStartProblem returns the problem that keeps the Pods of a Job from running; nil if none is known. reported is the last known
// problem. Problems that only an event names are looked for after eventsDelay, then less and less often.
func findStartProblem(f *facts, reported *v1alpha1.Explanation, job *batchv1.Job) (*startProblem, notes) {
	n, pods := f.newNotes(), podsOf(f.Pods, job.UID)
	for _, pod := range pods {
		if problem := podProblem(pod); problem != nil {
			return problem, n
		}
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
