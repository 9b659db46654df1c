package view

import (
	"encoding/json"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// Description is the page of the Pods and events of an object.
type Description struct {
	*Entry
	render.Description

	Problem string
	Command []string
}

// DescribeCommand is the arguments of the command that reads the Pods and events of an object; the user types it without the format.
func DescribeCommand(e *Entry, format ...string) []string {
	return objectArgs(e, append([]string{"describe"}, format...)...)
}

// YAMLCommand is the arguments of the command that prints an object.
func YAMLCommand(e *Entry) []string { return objectArgs(e, "list", "--output=yaml") }

// NewDescription reads the output of DescribeCommand in JSON. A problem may be about a part of it.
func NewDescription(e *Entry, output []byte, problem string) *Description {
	d := &Description{Entry: e, Problem: problem, Command: DescribeCommand(e)}
	if len(output) > 0 {
		if err := json.Unmarshal(output, &d.Description); err != nil {
			d.Problem = "the Pods and events cannot be read: " + cleanLine(err.Error())
		}
	}
	for i := range d.Pods {
		pod := &d.Pods[i]
		pod.Name, pod.Part, pod.State, pod.Node = cleanLine(pod.Name), cleanLine(pod.Part), cleanLine(pod.State), cleanLine(pod.Node)
	}
	for i := range d.Events {
		event := &d.Events[i]
		event.Type, event.Object, event.Reason, event.Message = cleanLine(event.Type), cleanLine(event.Object), cleanLine(event.Reason), cleanLine(event.Message)
	}
	return d
}

// PodLevel is the level of a Pod's state.
func PodLevel(pod *render.PodState) Level {
	switch {
	case pod.Failed:
		return LevelProblem
	case pod.State == "Succeeded":
		return LevelGood
	case pod.State == "Running":
		return LevelActive
	default:
		return LevelWaiting
	}
}
