package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// lettersAtOnce is how many dead letters are moved before the pass looks again.
const lettersAtOnce = 200

// removalTime is how long one pass works on a deletion before others have their turn.
const removalTime = 20 * time.Second

// blockedInterval is when a deletion that waits for the broker's queue is looked at again.
const blockedInterval = 5 * time.Second

// remove takes a deleted Queue as far as it goes now. Each step may be done twice, by who
// was killed after the first or by a second leader, and changes nothing the second time.
func (p *pass) remove(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(p.q, v1alpha1.QueueFinalizer) {
		return ctrl.Result{}, nil
	}
	engine, removal, err := p.beginRemoval(ctx)
	if errors.Is(err, brokerconn.ErrConnecting) {
		return ctrl.Result{}, nil // an event follows
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	working, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	for {
		step, trouble := removal.Next()
		p.seen.Blocked, p.seen.Figures = trouble, removal.Figures
		switch step {
		case queue.StepLetGo:
			return ctrl.Result{}, p.letGo(ctx, removal)
		case queue.StepWait:
			_, err := p.record(ctx)
			if removal.Going && apierrors.IsForbidden(err) {
				err = nil // it waits for what goes as well
			}
			return ctrl.Result{RequeueAfter: blockedInterval}, err
		default:
			if err := p.take(working, engine, step, removal); err != nil {
				p.refused(err, removal)
			}
		}
		if ctx.Err() != nil {
			return ctrl.Result{}, ctx.Err()
		}
	}
}

// beginRemoval gathers what is known before the broker is asked.
func (p *pass) beginRemoval(ctx context.Context) (broker.Engine, *queue.Removal, error) {
	removal := queue.RemovalOf(p.q, &p.seen.Effective)
	engine, err := p.line.Engine()
	if err != nil && !removal.Abandoned {
		if errors.Is(err, brokerconn.ErrConnecting) {
			return nil, nil, err
		}
		if engine = p.line.EngineForCleanup(); engine == nil {
			p.refused(err, &removal)
		}
	}
	if removal.Going, err = kube.NamespaceTerminating(ctx, p.live, p.q.Namespace); err != nil {
		return nil, nil, err
	}
	removal.Referrers, err = p.referrers(ctx)
	if err != nil && (!removal.Going || !apierrors.IsForbidden(err)) { // they go, too
		return nil, nil, err
	}
	if removal.Letters == v1alpha1.DeadLetterMove {
		_, removal.NoTarget, err = p.target(ctx)
		if removal.Going && apierrors.IsForbidden(err) {
			removal.NoTarget, err = queue.NoTarget(p.seen.Effective.DeadLetter.MoveTo, "goes with the namespace"), nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return engine, &removal, nil
}

// take takes one step.
func (p *pass) take(ctx context.Context, engine broker.Engine, step queue.Step, r *queue.Removal) error {
	name, owner := queue.BrokerQueueName(p.q), queue.BrokerQueueOwner(p.q)
	switch step { //exhaustive:enforce
	case queue.StepClaim:
		// One that is not there is not made again to be let go.
		if _, err := engine.Stats(ctx, name); err != nil {
			return err
		}
		_, err := engine.EnsureQueue(ctx, queue.DesiredQueue(p.q, &p.seen.Effective))
		r.Held = err == nil
		return err
	case queue.StepClose:
		err := engine.RejectNewMessages(ctx, name, owner)
		r.Held = err == nil
		return err
	case queue.StepLook:
		return p.lookAtLetters(ctx, engine, r)
	case queue.StepMoveLetters:
		r.Figures = nil // look again, and write nothing about what is half done
		target, trouble, err := p.target(ctx)
		if r.NoTarget = trouble; err != nil || trouble != nil {
			return err
		}
		_, err = engine.DeadLetters(name).Move(ctx, target, lettersAtOnce)
		return err
	case queue.StepPurgeLetters:
		r.Figures = nil
		return engine.DeadLetters(name).Purge(ctx)
	case queue.StepRelease:
		err := engine.ReleaseOwnership(ctx, name, owner)
		r.Finished = err == nil
		return err
	case queue.StepDelete:
		err := engine.DeleteQueue(ctx, name, owner)
		r.Finished = err == nil
		return err
	case queue.StepLetGo, queue.StepWait:
	}
	return nil
}

// lookAtLetters reads the figures, with what the broker has given up on among the dead
// letters.
func (p *pass) lookAtLetters(ctx context.Context, engine broker.Engine, r *queue.Removal) error {
	name := queue.BrokerQueueName(p.q)
	if _, err := engine.Rescue(ctx, name); err != nil {
		return err
	}
	figures, err := engine.Stats(ctx, name)
	if err == nil {
		r.Figures = &figures
	}
	return err
}

// refused takes note of what the broker, or the way to it, has refused.
func (p *pass) refused(err error, r *queue.Removal) {
	class := broker.ClassOf(err)
	if class == broker.ClassNotFound || class == broker.ClassConflict {
		r.Gone = true
		return
	}
	p.doubt(err)
	trouble := &queue.Trouble{Reason: brokerconn.ConditionReason(err), Message: err.Error()}
	r.Unreachable = trouble
	if !answered(err) {
		p.seen.Unreachable = trouble
	}
}

// letGo removes the finalizer.
func (p *pass) letGo(ctx context.Context, r *queue.Removal) error {
	if err := p.patchFinalizer(ctx, controllerutil.RemoveFinalizer); err != nil {
		return fmt.Errorf("taking the finalizer off: %w", err)
	}
	p.line.ForgetQueue(queue.BrokerQueueName(p.q))
	p.emit(queue.Farewell(r))
	return nil
}

// referrers are the WorkerPools that name the Queue, those being deleted too: they drain.
// They are only asked for here, so they are not kept in the cache for it.
func (p *pass) referrers(ctx context.Context) ([]string, error) {
	var pools v1alpha1.WorkerPoolList
	err := p.live.List(ctx, &pools, client.InNamespace(p.q.Namespace))
	if meta.IsNoMatchError(err) {
		return nil, nil // the kind is not installed, so there are none
	}
	if err != nil {
		return nil, fmt.Errorf("listing WorkerPools: %w", err)
	}
	var names []string
	for i := range pools.Items {
		for _, reference := range pools.Items[i].Spec.Queues {
			if reference.Name == p.q.Name {
				names = append(names, pools.Items[i].Name)
			}
		}
	}
	return names, nil
}

// target is the broker's name of the queue that dead letters move to, or why they cannot.
func (p *pass) target(ctx context.Context) (string, *queue.Trouble, error) {
	to := &v1alpha1.Queue{}
	key := types.NamespacedName{Namespace: p.q.Namespace, Name: p.seen.Effective.DeadLetter.MoveTo}
	if err := p.live.Get(ctx, key, to); err != nil {
		if apierrors.IsNotFound(err) {
			return "", queue.NoTarget(key.Name, "not found"), nil
		}
		return "", nil, fmt.Errorf("reading the Queue %s: %w", key.Name, err)
	}
	effective, err := p.effective(ctx, to)
	if err != nil {
		return "", nil, err
	}
	if p.keeper.Conn(to.Namespace, effective.Broker).Key != p.line.Key {
		return "", queue.NoTarget(key.Name, "is on another broker"), nil
	}
	return queue.BrokerQueueName(to), queue.TargetTrouble(to), nil
}
