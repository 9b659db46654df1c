package workerpool

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/policy"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// maxStatsAge is the maximum age of stats that were read for another object.
const maxStatsAge = time.Second

// observedQueues are the queues of a pool, all on one broker.
type observedQueues struct {
	conn *brokerconn.Conn
	all  []observedQueue
}

type observedQueue struct {
	object *v1alpha1.Queue
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

// observeQueues reads the pool's queues and their stats, or its source.
func (r *Reconciler) observeQueues(ctx context.Context, observed *observation) error {
	if observed.Pool.Spec.Source != nil {
		r.observeSource(ctx, observed)
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
	if err := r.observeConfig(ctx, observed); err != nil {
		return err
	}
	queues.observeStats(ctx, observed)
	return nil
}

func (r *Reconciler) observeSource(ctx context.Context, observed *observation) {
	if r.options.Sources == nil {
		observed.StatsError = "this operator reads no sources"
		observed.setProblem(v1alpha1.ReasonSpecInvalid, "spec.source: "+observed.StatsError+"; use spec.queues")
		return
	}
	stats, err := r.options.Sources.ReadBacklog(ctx, observed.Pool.Namespace, observed.Pool.Spec.Source)
	if err != nil {
		observed.StatsError = err.Error()
		return
	}
	pool.AddReportedInFlight(stats, observed.Workers)
	observed.Stats = stats
}

// findQueues returns the pool's queues, or the problem with them.
func (r *Reconciler) findQueues(ctx context.Context, observed *observation) (*observedQueues, *core.Problem, error) {
	wp := observed.Pool
	found := &observedQueues{}
	for i, ref := range wp.Spec.Queues {
		q := &v1alpha1.Queue{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: wp.Namespace, Name: ref.Name}, q)
		if apierrors.IsNotFound(err) {
			return nil, &core.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: fmt.Sprintf("spec.queues[%d]: Queue %q not found", i, ref.Name)}, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading Queue %s: %w", ref.Name, err)
		}
		if problem := pool.QueueProblem(i, q); problem != nil {
			return nil, problem, nil
		}
		selected, _ := policy.SelectPolicies(observed.namespacePolicies, q.Labels) // the Queue's controller reports invalid selectors
		effective := policy.EffectiveQueue(q, selected)
		conn := r.brokers.Conn(wp.Namespace, effective.Broker)
		if found.conn != nil && conn.Key != found.conn.Key {
			return nil, &core.Problem{
				Reason: v1alpha1.ReasonQueuesOnSeveralBrokers,
				Message: fmt.Sprintf("spec.queues[%d]: Queue %q is on another broker than Queue %q; all queues of a WorkerPool must be on one broker",
					i, ref.Name, wp.Spec.Queues[0].Name),
			}, nil
		}
		found.conn = conn
		found.all = append(found.all, observedQueue{q, queue.DesiredQueue(q, effective, ""), max(ref.Weight, 1)})
	}
	return found, nil, nil
}

// observeStats reads the stats and limits of all queues. If the stats of one queue cannot be
// read, those of all are unknown.
func (qs *observedQueues) observeStats(ctx context.Context, observed *observation) {
	var configs []broker.QueueConfig
	for i := range qs.all {
		configs = append(configs, qs.all[i].config)
	}
	observed.Limits = pool.CombineLimits(configs)
	var readings []pool.QueueReading
	for i := range qs.all {
		q := &qs.all[i]
		stats, err := qs.conn.Stats(ctx, q.config.Name, maxStatsAge)
		if err != nil {
			observed.StatsError = fmt.Sprintf("reading the stats of Queue %s: %v", q.object.Name, err)
			return
		}
		reading := pool.QueueReading{Queue: q.config, Stats: stats}
		if wait := q.object.Status.Wait; wait != nil && wait.P95 != nil {
			reading.WaitP95 = &wait.P95.Duration
		}
		readings = append(readings, reading)
	}
	observed.Stats = pool.CombineReadings(readings)
}

// notifyOnFirstMessage requests a notification of the first message if the pool has no workers.
// If messages are waiting already, a notification would trigger reconciliations without end.
func (*Reconciler) notifyOnFirstMessage(wp *v1alpha1.WorkerPool, observed *observation, decision *pool.Decision) {
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
