package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// observe returns the observation before the first request to the broker.
func (r *Reconciler) observe(ctx context.Context, q *v1alpha1.Queue) (queue.Observation, error) {
	effective, err := r.effectiveConfig(ctx, q)
	if err != nil {
		return queue.Observation{}, err
	}
	clusterID, err := r.clusterID.Get(ctx, r.Live)
	if err != nil {
		return queue.Observation{}, err
	}
	o := queue.Observation{
		Queue: q, ClusterID: clusterID, Effective: *effective, Now: r.Clock.Now(), SweepInterval: r.options.SweepInterval,
		Jitter: rand.Float64(), //nolint:gosec // no secret depends on it
	}
	conn := r.connOf(&o)
	// Notifications must find the Queue before the connection is checked; otherwise a notification could be lost.
	r.tracked.Update(q, func(t *trackedQueue) {
		t.broker, t.name = conn.Key, queue.BrokerQueueName(q, clusterID)
		o.History = t.history
	})
	o.Connection = queue.Connection{BrokerID: conn.Key.String(), Engine: conn.Key.Engine}
	problem := (*brokeraccess.ConnectionError)(nil)
	if _, err := engineOf(conn, &o); errors.As(err, &problem) {
		o.Connection.Problem = new(problem.Problem())
	} else {
		o.Connection.Connecting = err != nil
	}
	if !q.DeletionTimestamp.IsZero() {
		err = r.observeDeletion(ctx, &o)
	}
	return o, err
}

func (r *Reconciler) effectiveConfig(ctx context.Context, q *v1alpha1.Queue) (*v1alpha1.QueueEffective, error) {
	policies, err := r.policies.Get(ctx, q.Namespace)
	if err != nil {
		return nil, err
	}
	selected := policies.Select(q.Labels)
	return policy.EffectiveQueue(q, &selected), nil
}

func (r *Reconciler) connOf(o *queue.Observation) *brokerconn.Conn {
	return r.brokers.Conn(o.Queue.Namespace, o.Effective.Broker)
}

// engineOf returns the connection's engine. A deleted Queue can also use a connection whose Secret was deleted first.
func engineOf(conn *brokerconn.Conn, o *queue.Observation) (broker.Engine, error) {
	engine, err := conn.Engine()
	if err != nil && !o.Queue.DeletionTimestamp.IsZero() {
		if remaining := conn.EngineForCleanup(); remaining != nil {
			return remaining, nil
		}
	}
	return engine, err
}

// observeDeletion reads the objects on which only the deletion of a Queue depends. In a terminating namespace the operator may
// have lost the permission to read them; they then do not block the deletion.
func (r *Reconciler) observeDeletion(ctx context.Context, o *queue.Observation) (err error) {
	d := &o.Deletion
	if d.NamespaceTerminating, err = kube.NamespaceTerminating(ctx, r.Live, o.Queue.Namespace); err != nil {
		return err
	}
	isIgnored := func(err error) bool {
		return d.NamespaceTerminating && decision.ClassOf(err) == decision.PermissionMissing
	}
	if d.WorkerPools, err = r.workerPoolsOf(ctx, o.Queue); err != nil && !isIgnored(err) {
		return err
	}
	if queue.DeadLetterActionOnDelete(o.Queue, &o.Effective) != v1alpha1.DeadLetterMove {
		return nil
	}
	_, d.MoveProblem, err = r.moveTarget(ctx, o)
	if isIgnored(err) {
		d.MoveProblem, err = queue.MoveProblem(o.Effective.DeadLetter.MoveToRef.Name, "is deleted with the namespace"), nil
	}
	return err
}

// workerPoolsOf returns the WorkerPools that refer to the Queue. WorkerPools that are being deleted still drain, so they count.
// It bypasses the cache: no other controller needs WorkerPools of all namespaces in it.
func (r *Reconciler) workerPoolsOf(ctx context.Context, q *v1alpha1.Queue) ([]string, error) {
	var pools v1alpha1.WorkerPoolList
	err := r.Live.List(ctx, &pools, client.InNamespace(q.Namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil // the CRD is not installed, or was deleted
	}
	if err != nil {
		return nil, fmt.Errorf("listing WorkerPools: %w", err)
	}
	var names []string
	for i := range pools.Items {
		for _, reference := range pools.Items[i].Spec.Queues {
			if reference.Name == q.Name {
				names = append(names, pools.Items[i].Name)
			}
		}
	}
	return names, nil
}

// moveTarget returns the broker's name of the queue that dead letters move to, or why they cannot be moved.
func (r *Reconciler) moveTarget(ctx context.Context, o *queue.Observation) (string, *decision.Problem, error) {
	target := &v1alpha1.Queue{}
	key := types.NamespacedName{Namespace: o.Queue.Namespace, Name: o.Effective.DeadLetter.MoveToRef.Name}
	if err := r.Live.Get(ctx, key, target); err != nil {
		if apierrors.IsNotFound(err) {
			return "", queue.MoveProblem(key.Name, "not found"), nil
		}
		return "", nil, fmt.Errorf("reading the Queue %s: %w", key.Name, err)
	}
	effective, err := r.effectiveConfig(ctx, target)
	if err != nil {
		return "", nil, err
	}
	if r.brokers.Conn(target.Namespace, effective.Broker).Key != r.connOf(o).Key {
		return "", queue.MoveProblem(key.Name, "is on another broker"), nil
	}
	return target.Status.Name, queue.MoveTargetProblem(target), nil
}
