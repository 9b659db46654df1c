package queue

import (
	"cmp"
	"errors"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Observation contains everything that one reconciliation has observed about a Queue.
type Observation struct {
	Queue *v1alpha1.Queue
	// ClusterID identifies the cluster on brokers.
	ClusterID string
	// Effective is the configuration of the Queue after Policies and defaults.
	Effective v1alpha1.QueueEffective
	// Now is when the reconciliation started.
	Now time.Time
	// SweepInterval is the mean time between two comparisons of an unchanged queue with its spec.
	SweepInterval time.Duration
	// Jitter is a random number from 0 to 1 that spreads the comparisons over time.
	Jitter     float64
	Connection Connection
	// Deletion is set only for a deleted Queue.
	Deletion DeletionContext
	// History of earlier reconciliations; empty after a restart of the operator.
	History History
	BrokerAnswers
}

// Connection is the state of the connection to the broker of a Queue.
type Connection struct {
	// BrokerID changes when the Queue refers to another broker.
	BrokerID string
	// Engine of the broker; empty without a broker.
	Engine v1alpha1.Engine
	// Connecting is true until the first attempt to connect ends, which triggers a reconciliation.
	Connecting bool
	// Problem is why the connection cannot be used; nil if it can.
	Problem *decision.Problem
}

// DeletionContext contains the conditions for the deletion of a Queue apart from its broker.
type DeletionContext struct {
	NamespaceTerminating bool
	// WorkerPools that still refer to the Queue, by name.
	WorkerPools []string
	// MoveProblem is why the Queue deadLetter.moveToRef cannot receive dead letters; nil if it can.
	MoveProblem *decision.Problem
}

// BrokerAnswers are the results of the actions executed in this reconciliation.
type BrokerAnswers struct {
	// Stats of the queue; nil if they have to be read.
	Stats *broker.QueueStats
	// NotFound is true if the broker has no such queue.
	NotFound bool
	// IsFresh is true if the API server confirmed that Queue is the latest version.
	IsFresh bool
	// EnsureResult is the result of comparing the queue with its spec; nil if they were not compared.
	EnsureResult *broker.EnsureResult
	// Rescued is true if the messages that the broker gave up on are now dead letters.
	Rescued bool
	// ProcessedDeadLetters is the number of dead letters that the requested operation processed; nil before it succeeds. KeptDeadLetter is
	// why one of the others stays.
	ProcessedDeadLetters *int64
	KeptDeadLetter       error
	// RequeueContinues is true if the next reconciliation continues the requested requeue.
	RequeueContinues bool
	// Conflict means that the queue belongs to another owner, which may no longer exist; nil without a conflict.
	Conflict *broker.OwnerConflictError
	// GoneOwnerUID is the UID of an owner that no longer exists.
	GoneOwnerUID string
	// Unreachable is why the broker gave no answer; nil if it answered.
	Unreachable *decision.Problem
	// BrokerError is the error with which the broker refused an action.
	BrokerError error

	// IsOwner is true if the broker confirmed that the deleted Queue owns the queue, NotOwner if the queue does not exist or
	// belongs to another Queue.
	IsOwner, NotOwner bool
	// Released and Deleted are true if the broker released or deleted the queue.
	Released, Deleted bool
}

// ActionResult is the result of one action.
type ActionResult struct {
	Stats        broker.QueueStats
	EnsureResult broker.EnsureResult
	Requeued     RequeuedPart
	Rescue       broker.RescueResult
	// MoveProblem is why dead letters could not be moved.
	MoveProblem *decision.Problem
	// OwnerExists is true if the API server has the owner of the queue.
	OwnerExists bool
	// Err is the answer of the broker, or of the connection to it.
	Err error
}

// Apply adds the result of an action to the observation.
func (o *Observation) Apply(action Action, result ActionResult) {
	if action == ActionRequeueDeadLetters {
		result.Err = o.applyRequeued(result.Requeued, result.Err)
	}
	if result.Err != nil {
		o.applyError(action, result.Err)
		if action == ActionRescueMessages {
			o.History.Comparison = Comparison{} // continue with the next reconciliation, not with the next sweep
		}
		return
	}
	switch action { //exhaustive:enforce
	case ActionReadStats:
		o.Stats = &result.Stats
	case ActionAssertFresh:
		o.IsFresh = true
	case ActionEnsureQueue:
		o.applyEnsured(result.EnsureResult)
	case ActionLookUpOwner:
		if result.OwnerExists {
			o.BrokerError = o.Conflict
		} else {
			o.GoneOwnerUID = o.Conflict.Owner.UID
		}
		o.Conflict = nil
	case ActionRescueMessages:
		o.Rescued, o.Stats = true, nil
		o.History.Stranded = o.History.Stranded.add(result.Rescue.Stranded, o.Now)
		if result.Rescue.Rescued >= broker.MaxRescued || !o.History.Stranded.Since.IsZero() {
			o.History.Comparison.Expires = o.Now.Add(unfinishedInterval) // a sweep that left something continues soon
		}
	case ActionRequeueDeadLetters:
		o.Stats = nil
	case ActionPurgeDeadLetters:
		o.ProcessedDeadLetters, o.Stats = new(o.Stats.DeadLetters), nil
		o.Rescued = !o.isDeleted() // a deletion rescues again before it proceeds
	case ActionMoveDeadLetters:
		o.Deletion.MoveProblem, o.Stats, o.Rescued = result.MoveProblem, nil, false
	case ActionRejectMessages:
		o.IsOwner, o.Stats = true, nil
	case ActionReleaseQueue:
		o.Released = true
	case ActionDeleteQueue:
		o.Deleted = true
	case ActionNone, ActionAddFinalizer:
	}
}

// requeueProgress returns where the requested requeue begins or continues.
func (o *Observation) requeueProgress() RequeueProgress {
	p := o.History.Requeue
	if p.After == 0 {
		p.Left = o.Stats.DeadLetters
	}
	return p
}

// applyRequeued records a part of the requested requeue. It returns the error, unless this is about a dead letter that stays.
func (o *Observation) applyRequeued(part RequeuedPart, err error) error {
	p := o.requeueProgress()
	p.Requeued += int64(part.Requeued)
	kept := (*broker.KeptDeadLetterError)(nil)
	if errors.As(err, &kept) {
		p.Kept, err = cmp.Or[error](p.Kept, kept), nil
	}
	if err == nil {
		p.After, p.Left = max(p.After, part.Last), p.Left-int64(part.Processed)
		o.RequeueContinues = part.TimedOut && p.Left > 0
	} else {
		p.Left -= int64(part.Requeued) // the next part meets the others again
	}
	o.History.Requeue = p
	if err == nil && !o.RequeueContinues {
		o.ProcessedDeadLetters, o.KeptDeadLetter, o.History.Requeue = &p.Requeued, p.Kept, RequeueProgress{}
	}
	return err
}

func (o *Observation) applyEnsured(result broker.EnsureResult) {
	o.NotFound = false
	if o.isDeleted() {
		o.IsOwner, o.Stats = true, nil
		return
	}
	o.EnsureResult = &result
	if result.Created || result.Updated || result.Corrected {
		o.Stats = nil
	}
	if o.Stats != nil && messageCount(o.Stats) == 0 { // nothing to rescue
		o.Rescued, o.History.Stranded = true, o.History.Stranded.add(new(int64(0)), o.Now)
	}
	interval := o.SweepInterval
	if result.Storage.IsUnfinished() {
		interval = min(interval, unfinishedInterval)
	}
	o.History.Comparison = Comparison{
		BrokerID: o.Connection.BrokerID, Desired: DesiredQueue(o.Queue, &o.Effective, o.ClusterID), Result: result,
		Expires: o.Now.Add(withJitter(interval, o.Jitter)),
	}
}

// applyError interprets an error of the broker, or of the connection to it.
func (o *Observation) applyError(action Action, err error) {
	class := broker.ClassOf(err)
	refused := class == broker.ClassInvalid || class == broker.ClassTooLarge || class == broker.ClassConflict || class == broker.ClassNotFound
	// The connection itself reports some errors, not the broker behind it.
	connectionError := interface{ Problem() decision.Problem }(nil)
	// Once the API server has confirmed the Queue, a queue that was not found may be created.
	mayCreate := o.EnsureResult == nil && (action == ActionReadStats || action == ActionEnsureQueue && !o.IsFresh)
	// This cluster can look up the owner of the queue, and has not done so yet.
	conflict := conflictIn(err)
	mayReplace := conflict != nil && conflict.Owner.UID != o.GoneOwnerUID && conflict.Owner.SharesScope(BrokerQueueOwner(o.Queue, o.ClusterID))
	switch {
	case o.isDeleted() && (class == broker.ClassNotFound || class == broker.ClassConflict):
		o.applyNoQueue(action, class, err)
		return
	case errors.As(err, &connectionError):
		o.Connection.Problem = new(connectionError.Problem())
	case class == broker.ClassNotFound && mayCreate:
		o.NotFound = true
	case mayReplace:
		o.Conflict = conflict
		o.History.Comparison = Comparison{}
	case refused:
		o.BrokerError = err
		o.History.Comparison = Comparison{}
	default:
		o.Unreachable = &decision.Problem{Reason: ReasonForClass(class), Message: err.Error()}
	}
	if action != ActionRequeueDeadLetters && action != ActionPurgeDeadLetters {
		o.Stats = nil // they may belong to another owner's queue
	}
}

// applyNoQueue records that a deleted Queue has no queue on the broker, or that a part of the queue is missing although its
// owner was confirmed. An interrupted deletion leaves the owner for last, and continues from there.
func (o *Observation) applyNoQueue(action Action, class broker.ErrorClass, err error) {
	o.Stats = nil
	switch isIncomplete := o.IsOwner && class == broker.ClassNotFound; {
	case isIncomplete && action == ActionRescueMessages:
		o.Rescued = true
	case isIncomplete && action == ActionReadStats:
		o.Stats = &broker.QueueStats{}
	case isIncomplete && (action == ActionMoveDeadLetters || action == ActionPurgeDeadLetters):
		o.BrokerError = err // the target of the move may be missing
	default:
		o.NotOwner = true
	}
}

// conflictIn returns the conflict that an error reports; nil without one.
func conflictIn(err error) *broker.OwnerConflictError {
	conflict := (*broker.OwnerConflictError)(nil)
	errors.As(err, &conflict)
	return conflict
}

// ReasonForClass returns the condition reason for an error of the broker.
func ReasonForClass(class broker.ErrorClass) string {
	switch class {
	case broker.ClassUnauthorized:
		return v1alpha1.ReasonUnauthorized
	case broker.ClassInvalid, broker.ClassTooLarge:
		return v1alpha1.ReasonRefusedByBroker
	case broker.ClassConflict:
		return v1alpha1.ReasonOwnedByOtherQueue
	default:
		return v1alpha1.ReasonConnectionFailed
	}
}

func (o *Observation) isDeleted() bool { return !o.Queue.DeletionTimestamp.IsZero() }

// unreachable returns why no request can be sent to the broker; nil if one can.
func (o *Observation) unreachable() *decision.Problem {
	if o.Connection.Problem != nil {
		return o.Connection.Problem
	}
	return o.Unreachable
}

func (o *Observation) hasFailed() bool { return o.unreachable() != nil || o.BrokerError != nil }

// withJitter returns a time from 3/4 to 5/4 of the interval.
func withJitter(interval time.Duration, jitter float64) time.Duration {
	return interval*3/4 + time.Duration(jitter*float64(interval)/2)
}
