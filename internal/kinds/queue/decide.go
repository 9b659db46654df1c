package queue

import (
	"reflect"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Action is one thing that the controller does before it decides again.
type Action string

// The actions. All but the first three and ActionLookUpOwner are requests to the broker.
const (
	// ActionNone means that the decision is final.
	ActionNone Action = ""
	// ActionAddFinalizer comes before the first change on the broker, so that the deletion
	// policy is always carried out.
	ActionAddFinalizer Action = "AddFinalizer"
	// ActionAssertFresh fails if the Queue changed or was deleted since it was read. Without
	// it, a second leader could create the queue of a deleted Queue.
	ActionAssertFresh Action = "AssertFresh"
	ActionReadStats   Action = "ReadStats"
	// ActionEnsureQueue creates or updates the queue. It fails if another Queue owns it.
	ActionEnsureQueue Action = "EnsureQueue"
	// ActionLookUpOwner reads the owner of the queue from the API server. The queue of an owner in
	// the same namespace that no longer exists is taken over.
	ActionLookUpOwner Action = "LookUpOwner"
	// ActionRescueMessages makes dead letters of the messages that the broker gave up on.
	ActionRescueMessages Action = "RescueMessages"
	// ActionRequeueDeadLetters requeues as many dead letters as the time allows.
	ActionRequeueDeadLetters Action = "RequeueDeadLetters"
	ActionPurgeDeadLetters   Action = "PurgeDeadLetters"
	// ActionMoveDeadLetters moves some dead letters to the Queue deadLetter.moveToRef.
	ActionMoveDeadLetters Action = "MoveDeadLetters"
	ActionRejectMessages  Action = "RejectMessages"
	// ActionReleaseQueue lets another Queue take over the queue.
	ActionReleaseQueue Action = "ReleaseQueue"
	ActionDeleteQueue  Action = "DeleteQueue"
)

// Decision is either an action to execute before the next decision, or final.
type Decision struct {
	// Action to execute. The fields below MaxStatsAge are set if it is ActionNone.
	Action Action
	// MaxStatsAge is how old the result of ActionReadStats may be.
	MaxStatsAge time.Duration
	// Requeue is where ActionRequeueDeadLetters begins or continues.
	Requeue RequeueProgress

	// Status to store.
	Status v1alpha1.QueueStatus
	// StatusUnchanged is true if Status equals the stored status.
	StatusUnchanged bool
	// StatsOnly is true if only stats change in the status, so that it can be stored later; see PostponeStatus.
	StatsOnly bool
	// StatusOptional is true if a missing permission to store the status is no error.
	StatusOptional bool
	// Events to emit once the status is stored.
	Events []decision.Event
	// History for the next reconciliation.
	History History

	// RemoveFinalizer is true if the deletion is complete.
	RemoveFinalizer bool
	// RemoveDeadLetterRequest is true if the annotation AnnotationDeadLetters was processed.
	RemoveDeadLetterRequest bool
	// CompletionEvent to emit once the finalizer or the annotation is removed.
	CompletionEvent *decision.Event
	// AwaitMessage is true if the broker has to report the next message of an idle queue.
	AwaitMessage bool
	// RequeueAfter is when to reconcile again; 0: on the next change.
	RequeueAfter time.Duration
}

const (
	// retryInterval follows a request that the broker refused or did not answer.
	retryInterval = 15 * time.Second
	// reconnectInterval keeps a connection without a broker in use. The Manager closes unused
	// connections, and reports at once when one is established.
	reconnectInterval = time.Minute
	// continueInterval separates the parts of a requeue.
	continueInterval = time.Second
	// blockedInterval follows a blocked deletion.
	blockedInterval = 5 * time.Second
	// sharedStatsAge is how old stats may be that another controller read.
	sharedStatsAge = time.Second
)

// Decide returns the next action on a Queue, or the final decision of a reconciliation.
func Decide(o Observation) Decision {
	if o.isDeleted() {
		return decideDeletion(&o)
	}
	if action := nextAction(&o); action != ActionNone {
		d := Decision{Action: action}
		if o.EnsureResult == nil && DeadLetterRequest(o.Queue) == "" { // a request concerns all current dead letters
			d.MaxStatsAge = sharedStatsAge // no action changed them
		}
		if action == ActionRequeueDeadLetters {
			d.Requeue = o.requeueProgress()
		}
		return d
	}
	if DeadLetterRequest(o.Queue) != RequestRequeue {
		o.History.Requeue = RequeueProgress{} // the request was withdrawn
	}
	d := conclude(&o, nil)
	if o.Connection.Connecting { // the connection triggers the next reconciliation
		return d
	}
	if request := DeadLetterRequest(o.Queue); o.ProcessedDeadLetters != nil {
		d.RemoveDeadLetterRequest, d.CompletionEvent = true, new(requestEvent(request, *o.ProcessedDeadLetters, o.KeptDeadLetter))
	}
	switch {
	case o.Connection.Problem != nil:
		d.RequeueAfter = reconnectInterval
	case o.hasFailed():
		d.RequeueAfter = retryInterval
	case o.RequeueContinues:
		d.RequeueAfter = continueInterval
	default:
		d.RequeueAfter, d.AwaitMessage = d.History.Stats.interval(), d.History.Stats.isIdle()
		if d.History.Comparison.Result.Storage.IsUnfinished() {
			d.RequeueAfter = decision.Earliest(d.RequeueAfter, unfinishedInterval)
		}
	}
	return d
}

// PostponeStatus makes the decision valid for a status that is stored by a later reconciliation.
func (d *Decision) PostponeStatus() {
	d.RequeueAfter = decision.Earliest(d.RequeueAfter, retryInterval)
}

func nextAction(o *Observation) Action {
	switch request := DeadLetterRequest(o.Queue); {
	case o.Connection.Connecting, o.hasFailed():
		return ActionNone
	case !slices.Contains(o.Queue.Finalizers, v1alpha1.QueueFinalizer):
		return ActionAddFinalizer
	case o.Conflict != nil:
		return ActionLookUpOwner
	case o.EnsureResult != nil && !o.Rescued:
		return ActionRescueMessages
	case o.Stats == nil && !o.NotFound:
		return ActionReadStats
	case o.NotFound && !o.IsFresh:
		return ActionAssertFresh
	// Dead letters are changed only right after the broker confirmed the owner.
	case o.EnsureResult == nil && (o.NotFound || request != "" || len(o.Stats.Missing) > 0 || o.Stats.Overdue || mustCompare(o)):
		return ActionEnsureQueue
	case o.ProcessedDeadLetters != nil, o.RequeueContinues:
		return ActionNone
	default:
		return deadLetterActions[request]
	}
}

// AnnotationDeadLetters requests one operation on the current dead letters. The operator removes it when the operation is
// complete.
const AnnotationDeadLetters = v1alpha1.Prefix + "dead-letters"

// The values of AnnotationDeadLetters.
const (
	// RequestRequeue makes the dead letters ready again, with no attempts counted.
	RequestRequeue = "Requeue"
	// RequestPurge deletes the dead letters.
	RequestPurge = "Purge"
)

var deadLetterActions = map[string]Action{
	RequestRequeue: ActionRequeueDeadLetters, RequestPurge: ActionPurgeDeadLetters,
}

// DeadLetterRequest returns the operation that a Queue requests, empty if it requests none.
func DeadLetterRequest(q *v1alpha1.Queue) string {
	if request := q.Annotations[AnnotationDeadLetters]; deadLetterActions[request] != ActionNone {
		return request
	}
	return ""
}

// Comparison is the last comparison of a queue on the broker with its spec.
type Comparison struct {
	BrokerID string
	Desired  broker.QueueConfig
	Result   broker.EnsureResult
	// Expires is when the queue has to be compared again.
	Expires time.Time
}

// mustCompare reports whether the queue has to be compared with its spec again. A new connection to the same broker is no
// reason: if the broker lost the queue, reading its stats fails.
func mustCompare(o *Observation) bool {
	last := &o.History.Comparison
	return last.BrokerID != o.Connection.BrokerID || !o.Now.Before(last.Expires) || len(last.Result.RetiringPriorities) > 0 ||
		!reflect.DeepEqual(last.Desired, DesiredQueue(o.Queue, &o.Effective, o.ClusterID))
}
