package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// observedQueues are the queues of a pool, all on one broker.
type observedQueues struct {
	conn *brokerconn.Conn
	all  []observedQueue
}

type observedQueue struct {
	object *v1alpha1.Queue
	// broker according to the Queue and its Policies.
	broker *v1alpha1.Broker
	config broker.QueueConfig
	weight int32
}

// names of the queues on the broker.
func (qs *observedQueues) names() []string {
	var names []string
	for i := range qs.all {
		names = append(names, qs.all[i].config.Name)
	}
	return names
}

func (qs *observedQueues) configs() []broker.QueueConfig {
	var configs []broker.QueueConfig
	for i := range qs.all {
		configs = append(configs, qs.all[i].config)
	}
	return configs
}

// observeQueues reads the pool's queues and their limits.
func (r *Reconciler) observeQueues(ctx context.Context, observed *observation) error {
	if observed.Pool.Spec.Source != nil {
		if r.options.Sources == nil {
			observed.StatsError = "this operator reads no sources"
			observed.setProblem(v1alpha1.ReasonSpecInvalid, "spec.source: "+observed.StatsError+"; use spec.queues")
		}
		return nil
	}
	queues, problem, err := r.findQueues(ctx, observed)
	if err != nil {
		return err
	}
	if problem != nil {
		observed.StatsError = problem.Message
		observed.setProblem(problem.Reason, problem.Message)
		return nil
	}
	observed.queues = queues
	observed.Limits = workerpool.CombineLimits(queues.configs())
	if err := r.observeConfig(ctx, observed); err != nil {
		return err
	}
	observed.checkOwnership()
	return nil
}

// checkOwnership makes sure that the pool reads and consumes only queues that its Queues own. A
// problem with the broker explains more, and was found before.
func (o *observation) checkOwnership() {
	for i, q := range o.queues.all {
		if !queue.OwnsQueue(q.object, q.broker) {
			o.StatsError = fmt.Sprintf("spec.queues[%d]: Queue %q does not own a queue on its broker yet; see its conditions", i, q.object.Name)
			o.setProblem(v1alpha1.ReasonQueueNotReady, o.StatsError)
			o.queues = nil
			return
		}
	}
}

// findQueues returns the pool's queues, or the problem with them.
func (r *Reconciler) findQueues(ctx context.Context, observed *observation) (*observedQueues, *decision.Problem, error) {
	wp := observed.Pool
	found := &observedQueues{}
	for i, ref := range wp.Spec.Queues {
		q := &v1alpha1.Queue{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: wp.Namespace, Name: ref.Name}, q)
		if apierrors.IsNotFound(err) {
			return nil, &decision.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: fmt.Sprintf("spec.queues[%d]: Queue %q not found", i, ref.Name)}, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading Queue %s: %w", ref.Name, err)
		}
		if problem := workerpool.QueueProblem(i, q); problem != nil {
			return nil, problem, nil
		}
		selected := observed.namespacePolicies.Select(q.Labels)
		effective := policy.EffectiveQueue(q, &selected)
		conn := r.brokers.Conn(wp.Namespace, effective.Broker)
		if found.conn != nil && conn.Key != found.conn.Key {
			return nil, &decision.Problem{
				Reason: v1alpha1.ReasonQueuesOnSeveralBrokers,
				Message: fmt.Sprintf("spec.queues[%d]: Queue %q is on another broker than Queue %q; all queues of a WorkerPool must be on one broker",
					i, ref.Name, wp.Spec.Queues[0].Name),
			}, nil
		}
		found.conn = conn
		found.all = append(found.all, observedQueue{q, effective.Broker, queue.DesiredQueue(q, effective, ""), max(ref.Weight, 1)})
	}
	return found, nil, nil
}

// notifyOnFirstMessage requests a notification of the first message if the pool has no workers.
// If messages are waiting already, a notification would trigger reconciliations without end.
func (*Reconciler) notifyOnFirstMessage(wp *v1alpha1.WorkerPool, observed *observation, decision *workerpool.Decision) {
	if observed.queues == nil || wp.Spec.Autoscaling == nil || decision.Status.Desired > 0 ||
		observed.Stats == nil || observed.Stats.Backlog > 0 {
		return
	}
	for i := range observed.queues.all {
		if q := &observed.queues.all[i].config; !q.Paused {
			observed.queues.conn.NotifyWhenReady(q.Name)
		}
	}
}
