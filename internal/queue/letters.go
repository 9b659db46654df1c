package queue

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// AnnotationDeadLetters asks for something to be done once with the dead letters that are
// there. The operator takes it off when that is done.
const AnnotationDeadLetters = v1alpha1.Prefix + "dead-letters"

// What may be asked for.
const (
	// RequestRequeue gives them back to workers, as new.
	RequestRequeue = "Requeue"
	// RequestPurge drops them.
	RequestPurge = "Purge"
)

// DeadLetterRequest is what is to be done with the dead letters; empty, if nothing is.
func DeadLetterRequest(q *v1alpha1.Queue) string {
	switch asked := q.Annotations[AnnotationDeadLetters]; asked {
	case RequestRequeue, RequestPurge:
		return asked
	}
	return ""
}

// LettersDone is the event of what was asked for.
func LettersDone(asked string, number int) Event {
	done := "dropped "
	if asked == RequestRequeue {
		done = "given back to workers: "
	}
	return Event{corev1.EventTypeNormal, "DeadLetters" + asked + "d", asked, done + counted(int64(number), "dead letter")}
}
