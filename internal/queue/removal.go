package queue

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// AnnotationAbandon with the value "true" lets a deleted Queue go, whatever is on its
// broker: for a broker that does not come back.
const AnnotationAbandon = v1alpha1.Prefix + "abandon"

// Abandoned tells that a Queue is to be let go without its broker.
func Abandoned(q *v1alpha1.Queue) bool { return q.Annotations[AnnotationAbandon] == "true" }

// Removal is what is known on the way of a deleted Queue.
type Removal struct {
	Policy  v1alpha1.DeletionPolicy
	Letters v1alpha1.DeadLetterAction

	// Abandoned: it goes at once.
	Abandoned bool
	// Going: its namespace is being deleted.
	Going bool
	// Unreachable is why the broker cannot be asked; nil if it can.
	Unreachable *Trouble
	// Gone: there is no such queue on the broker, or it belongs to another.
	Gone bool
	// Figures of the queue; nil if they are not yet known.
	Figures *broker.QueueStats
	// Paused: nobody takes messages from it.
	Paused bool
	// Referrers are the WorkerPools that still name it.
	Referrers []string
	// NoTarget is why dead letters cannot be moved; nil if they can.
	NoTarget *Trouble
	// Held: the broker has confirmed in this pass that the queue belongs to this Queue, by
	// a claim, or by closing it.
	Held bool
	// Finished: it was released or deleted on the broker.
	Finished bool
}

// Step on the way of a deleted Queue.
type Step string

// The steps.
const (
	// StepLook: read the queue's figures.
	StepLook Step = "Look"
	// StepClaim: make sure that the queue is this Queue's, and leave it as it is.
	StepClaim Step = "Claim"
	// StepClose: have the queue refuse producers.
	StepClose Step = "Close"
	// StepMoveLetters: give some dead letters to the other Queue.
	StepMoveLetters Step = "MoveLetters"
	// StepPurgeLetters: drop the dead letters.
	StepPurgeLetters Step = "PurgeLetters"
	// StepRelease: let another Queue have the queue.
	StepRelease Step = "Release"
	// StepDelete: delete the queue with all that is in it.
	StepDelete Step = "Delete"
	// StepLetGo: remove the finalizer.
	StepLetGo Step = "LetGo"
	// StepWait: there is nothing to be done now.
	StepWait Step = "Wait"
)

// RemovalOf a Queue, before anything is known.
func RemovalOf(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) Removal {
	r := Removal{
		Policy:    cmp.Or(q.Spec.DeletionPolicy, v1alpha1.DeletionRetain),
		Letters:   v1alpha1.DeadLetterBlock,
		Abandoned: Abandoned(q), Paused: q.Spec.Paused,
	}
	if e.DeadLetter != nil {
		r.Letters = cmp.Or(e.DeadLetter.OnDelete, r.Letters)
	}
	if DeadLetterRequest(q) == RequestPurge {
		r.Letters = v1alpha1.DeadLetterPurge
	}
	return r
}

// Next is what is to be done next, and what keeps the Queue if that is to wait. In a
// namespace that goes, WorkerPools are waited for, which go as well. Whatever else would be
// waited for does not come any more, as nothing can be made there: the queue is left on the
// broker with all that is in it, for another Queue to have.
func (r *Removal) Next() (Step, *Trouble) {
	step, trouble := r.next()
	switch {
	case step != StepWait || !r.Going || len(r.Referrers) > 0:
		return step, trouble
	case r.Unreachable != nil:
		return StepLetGo, nil
	}
	return StepRelease, nil
}

func (r *Removal) next() (Step, *Trouble) {
	switch {
	case r.Abandoned, r.Gone, r.Finished:
		return StepLetGo, nil
	case r.Unreachable != nil:
		return StepWait, &Trouble{r.Unreachable.Reason, fmt.Sprintf(
			"%s. If the broker does not come back, let the Queue go without it with the annotation %s: \"true\"",
			r.Unreachable.Message, AnnotationAbandon)}
	case r.Policy == v1alpha1.DeletionPurge && len(r.Referrers) > 0:
		return StepWait, r.referenced()
	case !r.Held && r.Policy == v1alpha1.DeletionRetain:
		return StepClaim, nil
	case !r.Held:
		return StepClose, nil
	case r.Figures == nil:
		return StepLook, nil
	case r.Policy == v1alpha1.DeletionDrain && held(r.Figures) > 0:
		return StepWait, r.notEmpty()
	case len(r.Referrers) > 0:
		return StepWait, r.referenced()
	case r.Figures.DeadLetters > 0:
		return r.letters()
	case r.Policy == v1alpha1.DeletionRetain:
		return StepRelease, nil
	}
	return StepDelete, nil
}

// letters is what becomes of dead letters.
func (r *Removal) letters() (Step, *Trouble) {
	switch {
	case r.Letters == v1alpha1.DeadLetterPurge:
		return StepPurgeLetters, nil
	case r.Letters == v1alpha1.DeadLetterMove && r.NoTarget == nil:
		return StepMoveLetters, nil
	case r.Letters == v1alpha1.DeadLetterMove:
		return StepWait, r.NoTarget
	}
	return StepWait, &Trouble{v1alpha1.ReasonDeadLetters, fmt.Sprintf(
		"%s, and deadLetter.onDelete is Block: set it to Move or Purge", counted(r.Figures.DeadLetters, "dead letter"))}
}

func (r *Removal) referenced() *Trouble {
	const some = 5
	names := strings.Join(r.Referrers[:min(some, len(r.Referrers))], ", ")
	if more := len(r.Referrers) - some; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return &Trouble{v1alpha1.ReasonStillReferenced, "WorkerPools take messages from it: " + names}
}

func (r *Removal) notEmpty() *Trouble {
	text := "deletionPolicy is Drain, and " + counted(held(r.Figures), "message") + " left"
	if r.Paused {
		text += "; paused keeps them from workers"
	}
	return &Trouble{v1alpha1.ReasonNotEmpty, text}
}

// NoTarget is that dead letters cannot be moved to the Queue of that name.
func NoTarget(name, why string) *Trouble {
	return &Trouble{v1alpha1.ReasonDeadLetters, fmt.Sprintf("deadLetter.moveTo: Queue %q %s", name, why)}
}

// TargetTrouble is why a Queue can take no dead letters of another; nil: it can. It must
// be known to own its queue, or the letters would be given to a stranger.
func TargetTrouble(to *v1alpha1.Queue) *Trouble {
	switch {
	case !to.DeletionTimestamp.IsZero():
		return NoTarget(to.Name, "is being deleted itself")
	case !meta.IsStatusConditionFalse(to.Status.Conditions, v1alpha1.ConditionConflict):
		return NoTarget(to.Name, "does not have its queue on the broker yet")
	}
	return nil
}

// Farewell is the event of a Queue that is let go.
func Farewell(r *Removal) Event {
	e := Event{corev1.EventTypeNormal, v1alpha1.EventQueueDeleted, "Delete", ""}
	switch {
	case r.Abandoned:
		e.Type, e.Message = corev1.EventTypeWarning, "let go without the broker, as annotated: the queue there stays as it is"
	case r.Gone:
		e.Message = "there was no queue of it on the broker"
	case r.Policy == v1alpha1.DeletionRetain:
		e.Message = "the queue stays on the broker, for another Queue to have"
	default:
		e.Message = "the queue was deleted on the broker"
	}
	return e
}
