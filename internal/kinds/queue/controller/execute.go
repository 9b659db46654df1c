package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
)

const (
	// decideTimeout limits all actions before one decision, so that other Queues of the broker get their turn.
	decideTimeout = 20 * time.Second
	actionTimeout = 10 * time.Second
	// moveBatchSize is the number of dead letters that one action moves.
	moveBatchSize = 200
)

// Observe implements kube.Kind. It returns the observation after all actions that come before the final decision. They are
// executed in the background: until they have ended, Observe returns kube.ErrPending.
func (r *Reconciler) Observe(ctx context.Context, q *v1alpha1.Queue) (*queue.Observation, error) {
	if !q.DeletionTimestamp.IsZero() && !slices.Contains(q.Finalizers, v1alpha1.QueueFinalizer) {
		return nil, nil // another finalizer keeps the Queue
	}
	o, err := r.observe(ctx, q)
	if err != nil {
		return nil, err
	}
	// The subject contains everything that the decisions depend on before the first action.
	subject, err := json.Marshal([]any{
		q.UID, q.Generation, q.DeletionTimestamp, q.Annotations, o.ClusterID, o.Effective, o.Connection, o.Deletion,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding what a decision depends on: %w", err)
	}
	execute := func(ctx context.Context) (*queue.Observation, error) { return r.executeActions(ctx, o) }
	final, found, err := r.answers.Observe(ctx, client.ObjectKeyFromObject(q), string(subject), o.Connection.BrokerID, execute)
	if err == nil && !found {
		return nil, kube.ErrPending
	}
	return final, err
}

func (r *Reconciler) executeActions(ctx context.Context, o queue.Observation) (*queue.Observation, error) {
	executing, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	for {
		decision := queue.Decide(o)
		if decision.Action == queue.ActionNone {
			return &o, nil
		}
		result, err := r.execute(executing, &o, &decision)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // the operator stops; this is not the broker's answer
		}
		o.Apply(decision.Action, result)
	}
}

// execute executes one action. Errors of the broker are part of the result.
func (r *Reconciler) execute(ctx context.Context, o *queue.Observation, d *queue.Decision) (queue.ActionResult, error) {
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	switch d.Action {
	case queue.ActionAddFinalizer:
		return queue.ActionResult{}, r.writeCache.SetFinalizer(ctx, r.Client, o.Queue, v1alpha1.QueueFinalizer, true)
	case queue.ActionAssertFresh:
		return queue.ActionResult{}, kube.AssertFresh(ctx, r.Live, r.Client, o.Queue)
	case queue.ActionLookUpOwner:
		owner := o.Conflict.Owner // in the namespace of the Queue
		_, ownerName, _ := strings.Cut(owner.Name, "/")
		found, err := kube.GetIfExists(ctx, r.Live, o.Queue.Namespace, ownerName, &v1alpha1.Queue{})
		return queue.ActionResult{OwnerExists: found != nil && string(found.UID) == owner.UID}, err
	}
	conn, name := r.connOf(o), queue.BrokerQueueName(o.Queue, o.ClusterID)
	engine, err := engineOf(conn, o)
	if err != nil {
		return queue.ActionResult{Err: err}, nil
	}
	result := queue.ActionResult{}
	switch {
	case d.Action == queue.ActionMoveDeadLetters:
		target := "" // checked again, because it may have changed since the last batch
		if target, result.MoveProblem, err = r.moveTarget(ctx, o); err == nil && result.MoveProblem == nil {
			_, result.Err = engine.DeadLetters(name).Move(ctx, target, moveBatchSize)
		}
	case d.Action == queue.ActionRequeueDeadLetters:
		result.Requeued, result.Err = requeueDeadLetters(ctx, engine.DeadLetters(name).Requeue, &d.Requeue)
	case d.Action == queue.ActionReadStats && o.Queue.DeletionTimestamp.IsZero():
		result.Stats, result.Err = conn.Stats(ctx, name, d.MaxStatsAge)
	default:
		result = executeOnBroker(ctx, engine, o, d.Action)
	}
	conn.CheckHealth(result.Err)
	return result, err
}

func executeOnBroker(ctx context.Context, engine broker.Engine, o *queue.Observation, action queue.Action) (result queue.ActionResult) {
	name, owner := queue.BrokerQueueName(o.Queue, o.ClusterID), queue.BrokerQueueOwner(o.Queue, o.ClusterID)
	switch action { //exhaustive:enforce
	case queue.ActionReadStats:
		result.Stats, result.Err = engine.Stats(ctx, name)
	case queue.ActionEnsureQueue:
		desired := queue.DesiredQueue(o.Queue, &o.Effective, o.ClusterID)
		desired.ReplacesOwnerUID, desired.MustExist = o.GoneOwnerUID, !o.IsFresh
		result.EnsureResult, result.Err = engine.EnsureQueue(ctx, desired)
		if result.EnsureResult.Corrected {
			driftCorrections.Of(o.Queue).Inc()
		}
		if result.EnsureResult.ErasedDelayed {
			delayedErasures.Of(o.Queue).Inc()
		}
	case queue.ActionRescueMessages:
		result.Rescue, result.Err = engine.Rescue(ctx, name)
		rescuedMessages.Of(o.Queue).Add(float64(result.Rescue.Rescued))
	case queue.ActionPurgeDeadLetters:
		result.Err = engine.DeadLetters(name).Purge(ctx)
	case queue.ActionRejectMessages:
		result.Err = engine.RejectNewMessages(ctx, name, owner)
	case queue.ActionReleaseQueue:
		result.Err = engine.ReleaseOwnership(ctx, name, owner)
	case queue.ActionDeleteQueue:
		result.Err = engine.DeleteQueue(ctx, name, owner)
	case queue.ActionNone, queue.ActionAddFinalizer, queue.ActionAssertFresh, queue.ActionLookUpOwner, queue.ActionMoveDeadLetters,
		queue.ActionRequeueDeadLetters:
	}
	return result
}

// requeueDeadLetters stops before ctx ends: a request that is cut off would look like a broker that does not answer.
func requeueDeadLetters(
	ctx context.Context, requeue func(context.Context, broker.RequeueOptions) (int, error), from *queue.RequeueProgress,
) (part queue.RequeuedPart, err error) {
	if from.Left <= 0 {
		return part, nil
	}
	deadline, _ := ctx.Deadline()
	until := deadline.Add(-actionTimeout / 2)
	part.Requeued, err = requeue(ctx, broker.RequeueOptions{
		After: from.After, Number: int(from.Left), Until: until,
		Selects: func(letter *broker.DeadLetter) bool {
			part.Processed, part.Last = part.Processed+1, letter.ID
			return true
		},
	})
	part.TimedOut = !time.Now().Before(until)
	return part, err
}
