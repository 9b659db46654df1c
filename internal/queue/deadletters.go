package queue

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

// AnnotationDeadLetters requests one operation on the current dead letters. The operator
// removes the annotation when the operation is complete.
const AnnotationDeadLetters = v1alpha1.Prefix + "dead-letters"

// The values of AnnotationDeadLetters.
const (
	// RequestRequeue makes the dead letters ready again, with no attempts counted.
	RequestRequeue = "Requeue"
	// RequestPurge deletes the dead letters.
	RequestPurge = "Purge"
)

// DeadLetterRequest returns the operation that a Queue requests, empty if it requests none.
func DeadLetterRequest(q *v1alpha1.Queue) string {
	switch request := q.Annotations[AnnotationDeadLetters]; request {
	case RequestRequeue, RequestPurge:
		return request
	}
	return ""
}

// requestEvent reports a completed request.
func requestEvent(request string, number int64) core.Event {
	verb := "Purged "
	if request == RequestRequeue {
		verb = "Requeued "
	}
	return core.Event{
		Type: corev1.EventTypeNormal, Reason: "DeadLetters" + request + "d", Action: request, Message: verb + countNoun(number, "dead letter"),
	}
}
