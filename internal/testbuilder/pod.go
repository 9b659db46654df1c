package testbuilder

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodBuilder builds a Pod of one container.
type PodBuilder struct{ pod corev1.Pod }

// Pod begins a Pod whose container has the name and no state yet.
func Pod(container string) *PodBuilder {
	return &PodBuilder{corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			ContainerStatuses: []corev1.ContainerStatus{{Name: container}},
		},
	}}
}

// Obj is what was built.
func (b *PodBuilder) Obj() corev1.Pod { return b.pod }

// Created sets when the Pod was made.
func (b *PodBuilder) Created(at time.Time) *PodBuilder {
	b.pod.CreationTimestamp = metav1.NewTime(at)
	return b
}

// Waiting is the Pod whose container cannot start.
func (b *PodBuilder) Waiting(reason, message string) *PodBuilder {
	b.state().Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	return b
}

// Unschedulable is the Pod that fits no node.
func (b *PodBuilder) Unschedulable(message string) *PodBuilder {
	b.pod.Status.ContainerStatuses = nil
	b.pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
	return b
}

// Running is the Pod whose container runs.
func (b *PodBuilder) Running() *PodBuilder {
	b.pod.Status.Phase = corev1.PodRunning
	b.state().Running = &corev1.ContainerStateRunning{}
	return b
}

// Exited is the Pod whose container ended with the code and left the message.
func (b *PodBuilder) Exited(code int32, message string) *PodBuilder {
	b.pod.Status.Phase = corev1.PodSucceeded
	reason := "Completed"
	if code != 0 {
		b.pod.Status.Phase, reason = corev1.PodFailed, "Error"
	}
	b.state().Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}
	return b
}

// Killed is the Pod whose container ended with that reason, such as OOMKilled.
func (b *PodBuilder) Killed(reason string) *PodBuilder {
	b.Exited(137, "")
	b.state().Terminated.Reason = reason
	return b
}

// Evicted is the Pod that failed without its container having a say.
func (b *PodBuilder) Evicted(message string) *PodBuilder {
	b.pod.Status.Phase, b.pod.Status.Reason, b.pod.Status.Message = corev1.PodFailed, "Evicted", message
	b.pod.Status.ContainerStatuses = nil
	return b
}

func (b *PodBuilder) state() *corev1.ContainerState { return &b.pod.Status.ContainerStatuses[0].State }
