package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxEventNoteBytes is the longest note of an event that the API server accepts. The recorder drops a rejected event.
const maxEventNoteBytes = 1024

// EmitEvent emits an event about an object. It truncates the message to maxEventNoteBytes.
func EmitEvent(recorder events.EventRecorder, about runtime.Object, event decision.Event) {
	recorder.Eventf(about, nil, event.Type, event.Reason, event.Action, "%s", decision.TruncateMessage(event.Message, maxEventNoteBytes))
}
