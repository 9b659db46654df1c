package queue

import (
	"cmp"
	"fmt"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// AnnotationAbandon with the value "true" removes a deleted Queue without its broker, for a broker that does not come back. The
// queue on the broker stays unchanged.
const AnnotationAbandon = v1alpha1.Prefix + "abandon"

// IsAbandoned reports whether a Queue is to be removed without its broker.
func IsAbandoned(q *v1alpha1.Queue) bool { return q.Annotations[AnnotationAbandon] == "true" }

func decideDeletion(o *Observation) Decision {
	if o.Connection.Connecting && !IsAbandoned(o.Queue) {
		return Decision{Status: o.Queue.Status, History: o.History} // the connection triggers the next reconciliation
	}
	action, blocked := nextDeletionAction(o)
	switch {
	case action != ActionNone:
		return Decision{Action: action}
	case blocked == nil:
		return Decision{Status: o.Queue.Status, History: o.History, RemoveFinalizer: true, CompletionEvent: new(removedEvent(o))}
	}
	d := conclude(o, blocked)
	d.RequeueAfter, d.StatusOptional = blockedInterval, o.Deletion.NamespaceTerminating
	return d
}

// nextDeletionAction returns the next action of a deletion, or the problem that blocks it. Without both, the deletion is complete.
//
// In a terminating namespace, the deletion waits only for WorkerPools, which are deleted too. No other object that could unblock it can
// be created there, so the queue stays on the broker with its content, for another Queue to take over.
func nextDeletionAction(o *Observation) (Action, *decision.Problem) {
	action, blocked := regularDeletionAction(o)
	switch {
	case blocked == nil || !o.Deletion.NamespaceTerminating || len(o.Deletion.WorkerPools) > 0:
		return action, blocked
	case o.hasFailed():
		return ActionNone, nil
	}
	return ActionReleaseQueue, nil
}

func blockedBy(reason, format string, values ...any) (Action, *decision.Problem) {
	return ActionNone, &decision.Problem{Reason: reason, Message: fmt.Sprintf(format, values...)}
}

func regularDeletionAction(o *Observation) (Action, *decision.Problem) {
	policy := cmp.Or(o.Queue.Spec.DeletionPolicy, v1alpha1.DeletionRetain)
	switch {
	case IsAbandoned(o.Queue), o.NotOwner, o.Released, o.Deleted:
		return ActionNone, nil
	case o.hasFailed():
		problem := o.unreachable()
		if problem == nil {
			problem = &decision.Problem{Reason: v1alpha1.ReasonRefusedByBroker, Message: o.BrokerError.Error()}
		}
		return blockedBy(problem.Reason, "%s. If the broker does not come back, remove the Queue without it with the annotation %s: \"true\"",
			problem.Message, AnnotationAbandon)
	case policy == v1alpha1.DeletionPurge && len(o.Deletion.WorkerPools) > 0:
		return workerPoolsBlock(o.Deletion.WorkerPools)
	// Both actions confirm the owner of the queue. Ensuring does not create a missing queue here, because the API server has
	// not confirmed the Queue.
	case !o.IsOwner && policy == v1alpha1.DeletionRetain:
		return ActionEnsureQueue, nil
	case !o.IsOwner:
		return ActionRejectMessages, nil
	case !o.Rescued:
		return ActionRescueMessages, nil
	case o.Stats == nil:
		return ActionReadStats, nil
	case policy == v1alpha1.DeletionDrain && messageCount(o.Stats) > 0:
		hint := ""
		if o.Queue.Spec.Suspend {
			hint = "; suspend keeps workers from taking them"
		}
		return blockedBy(v1alpha1.ReasonNotEmpty, "deletionPolicy is Drain and the queue has %s left%s",
			countNoun(messageCount(o.Stats), "message"), hint)
	case len(o.Deletion.WorkerPools) > 0:
		return workerPoolsBlock(o.Deletion.WorkerPools)
	case o.Stats.DeadLetters > 0:
		return deadLetterDeletionAction(o)
	case policy == v1alpha1.DeletionRetain:
		return ActionReleaseQueue, nil
	}
	return ActionDeleteQueue, nil
}

// DeadLetterActionOnDelete returns what happens to the dead letters of a deleted Queue. A
// requested purge counts too.
func DeadLetterActionOnDelete(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) v1alpha1.DeadLetterAction {
	switch {
	case DeadLetterRequest(q) == RequestPurge:
		return v1alpha1.DeadLetterPurge
	case e.DeadLetter == nil:
		return v1alpha1.DeadLetterBlock
	}
	return cmp.Or(e.DeadLetter.OnDelete, v1alpha1.DeadLetterBlock)
}

func deadLetterDeletionAction(o *Observation) (Action, *decision.Problem) {
	switch action := DeadLetterActionOnDelete(o.Queue, &o.Effective); {
	case action == v1alpha1.DeadLetterPurge:
		return ActionPurgeDeadLetters, nil
	case action == v1alpha1.DeadLetterMove && o.Deletion.MoveProblem == nil:
		return ActionMoveDeadLetters, nil
	case action == v1alpha1.DeadLetterMove:
		return ActionNone, o.Deletion.MoveProblem
	}
	return blockedBy(v1alpha1.ReasonDeadLetters, "the queue has %s and deadLetter.onDelete is Block: set it to Move or Purge",
		countNoun(o.Stats.DeadLetters, "dead letter"))
}

func workerPoolsBlock(pools []string) (Action, *decision.Problem) {
	return blockedBy(v1alpha1.ReasonStillReferenced, "WorkerPools still refer to the Queue: %s", joinSome(pools, ", "))
}

// MoveProblem explains why dead letters cannot be moved to the Queue name.
func MoveProblem(name, why string) *decision.Problem {
	return &decision.Problem{Reason: v1alpha1.ReasonDeadLetters, Message: fmt.Sprintf("deadLetter.moveToRef: Queue %q %s", name, why)}
}

// MoveTargetProblem returns why a Queue cannot receive dead letters of another Queue; nil if it can. It has to own its queue,
// because the dead letters would otherwise go to the owner.
func MoveTargetProblem(target *v1alpha1.Queue) *decision.Problem {
	switch {
	case !target.DeletionTimestamp.IsZero():
		return MoveProblem(target.Name, "is being deleted")
	case target.Status.Effective == nil || !OwnsQueue(target, target.Status.Effective.Broker):
		return MoveProblem(target.Name, "does not own its queue on the broker yet")
	}
	return nil
}

func removedEvent(o *Observation) decision.Event {
	e := decision.NormalEvent(v1alpha1.EventQueueDeleted, "Delete", "")
	switch {
	case IsAbandoned(o.Queue):
		e.Type, e.Message = warning, "Removed the Queue without its broker, as annotated: the queue on the broker is unchanged"
	case o.NotOwner:
		e.Message = "The Queue has no queue on the broker"
	case o.Deleted:
		e.Message = "Deleted the queue on the broker"
	case o.Released:
		e.Message = "Released the queue on the broker: another Queue can take it over"
	default:
		e.Type, e.Message = warning, "The namespace is terminating and the broker does not answer: the queue on the broker is unchanged"
	}
	return e
}
