package testbuilder

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// PodBuilder builds a Pod with one container.
type PodBuilder struct{ pod corev1.Pod }

// Pod returns a builder for a Pod of the step with the name of its container, which has no state yet.
func Pod(container string) *PodBuilder {
	return &PodBuilder{corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelStep: container}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			ContainerStatuses: []corev1.ContainerStatus{{Name: container}},
		},
	}}
}

// Obj returns the Pod.
func (b *PodBuilder) Obj() corev1.Pod { return b.pod }

// Created sets the creation time.
func (b *PodBuilder) Created(at time.Time) *PodBuilder {
	b.pod.CreationTimestamp = metav1.NewTime(at)
	return b
}

// Waiting makes the container wait for this reason.
func (b *PodBuilder) Waiting(reason, message string) *PodBuilder {
	b.containerState().Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	return b
}

// Unschedulable makes the Pod fit no node.
func (b *PodBuilder) Unschedulable(message string) *PodBuilder {
	b.pod.Status.ContainerStatuses = nil
	b.pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
	return b
}

// Running starts the container.
func (b *PodBuilder) Running() *PodBuilder {
	b.pod.Status.Phase = corev1.PodRunning
	b.containerState().Running = &corev1.ContainerStateRunning{}
	return b
}

// Exited terminates the container with this exit code and termination message when the Pod was created.
func (b *PodBuilder) Exited(code int32, message string) *PodBuilder {
	b.pod.Status.Phase = corev1.PodSucceeded
	reason := "Completed"
	if code != 0 {
		b.pod.Status.Phase, reason = corev1.PodFailed, "Error"
	}
	b.containerState().Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: b.pod.CreationTimestamp}
	return b
}

// Killed terminates the container for this reason, such as OOMKilled.
func (b *PodBuilder) Killed(reason string) *PodBuilder {
	b.Exited(137, "")
	b.containerState().Terminated.Reason = reason
	return b
}

// Evicted makes the Pod fail without a terminated container.
func (b *PodBuilder) Evicted(message string) *PodBuilder {
	b.pod.Status.Phase, b.pod.Status.Reason, b.pod.Status.Message = corev1.PodFailed, "Evicted", message
	b.pod.Status.ContainerStatuses = nil
	return b
}

func (b *PodBuilder) containerState() *corev1.ContainerState {
	return &b.pod.Status.ContainerStatuses[0].State
}
