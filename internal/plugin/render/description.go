package render

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

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
