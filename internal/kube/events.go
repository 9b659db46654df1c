package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/yardmaster/yardmaster/internal/core"
)

// maxEventNoteBytes is the longest note of an event that the API server accepts. The recorder
// drops a rejected event.
const maxEventNoteBytes = 1024

// EmitEvent emits an event about an object. It truncates the message to what the API server accepts.
func EmitEvent(recorder events.EventRecorder, about runtime.Object, event core.Event) {
	recorder.Eventf(about, nil, event.Type, event.Reason, event.Action, "%s", core.TruncateMessage(event.Message, maxEventNoteBytes))
}
