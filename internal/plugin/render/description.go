package render

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// PodState is a Pod of a run.
type PodState struct {
	Name string `json:"name"`
	// Part is the step or container that the Pod runs.
	Part string `json:"part,omitempty"`
	// State is Running, Succeeded, or why the Pod does not run or has failed.
	State   string    `json:"state"`
	Failed  bool      `json:"failed,omitempty"`
	Node    string    `json:"node,omitempty"`
	Created time.Time `json:"created"`
}

// NewPodState returns the state of a Pod: the first reason why a container of a Pod waits or has failed, or else the phase.
func NewPodState(pod *corev1.Pod) PodState {
	state := PodState{
		Name: pod.Name, Part: pod.Labels[v1alpha1.LabelStep], State: cmp.Or(string(pod.Status.Phase), "Pending"), Failed: pod.Status.Phase == corev1.PodFailed,
		Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time,
	}
	if !pod.DeletionTimestamp.IsZero() {
		state.State = "Terminating"
		return state
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch ended, waiting := container.State.Terminated, container.State.Waiting; {
		case ended != nil && ended.ExitCode != 0:
			state.State, state.Failed = fmt.Sprintf("%s, exit code %d", cmp.Or(ended.Reason, "Error"), ended.ExitCode), true
			return state
		case waiting != nil && !slices.Contains(usualWaitingReasons, waiting.Reason):
			state.State, state.Failed = waiting.Reason, true
			return state
		}
	}
	for _, condition := range pod.Status.Conditions {
		if pod.Status.Phase == corev1.PodPending && condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			state.State = cmp.Or(condition.Reason, state.State)
		}
	}
	return state
}

// Event is an event about an object, or about its Jobs or Pods.
type Event struct {
	Type    string    `json:"type"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	Last    time.Time `json:"last"`
}

// Description is the Pods and events of an object, the latest first.
type Description struct {
	Pods   []PodState `json:"pods"`
	Events []Event    `json:"events"`
}

// Lines renders the Pods, and then the events.
func (d *Description) Lines(s terminal.Style, now time.Time) []string {
	age := func(t time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }
	pods := [][]string{{"POD", "STEP", "STATE", "NODE", "AGE"}}
	for _, pod := range d.Pods {
		pods = append(pods, []string{terminal.Sanitize(pod.Name), terminal.Sanitize(pod.Part), terminal.Sanitize(pod.State), cmp.Or(terminal.Sanitize(pod.Node), "<none>"), age(pod.Created)})
	}
	events := [][]string{{"LAST", "TYPE", "OBJECT", "REASON", "MESSAGE"}}
	for _, event := range d.Events {
		events = append(events, []string{age(event.Last), terminal.Sanitize(event.Type), terminal.Sanitize(event.Object), terminal.Sanitize(event.Reason), terminal.Sanitize(event.Message)})
	}
	return append(append(s.Table(pods), ""), s.Table(events)...)
}
