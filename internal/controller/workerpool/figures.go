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
	"github.com/yardmaster/yardmaster/internal/policy"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// figuresAge is how old figures may be that another has read.
const figuresAge = time.Second

// queues of a pool, all on one broker.
type queues struct {
	line *brokerconn.Conn
	all  []poolQueue
}

type poolQueue struct {
	object *v1alpha1.Queue
	wanted broker.QueueConfig
	weight int32
}

// observeQueues finds the pool's queues and reads what they hold.
func (r *Reconciler) observeQueues(ctx context.Context, seen *sight) error {
	wp := seen.in.Pool
	if wp.Spec.Source != nil {
		return r.observeSource(ctx, seen)
	}
	qs, problem, err := r.queues(ctx, seen)
	if err != nil {
		return err
	}
	if problem != nil {
		seen.in.StatsError = problem.Message
		if seen.in.Problem == nil {
			seen.in.Problem = problem
		}
		return nil
	}
	seen.queues, seen.in.Limits = qs, qs.limits()
	if err := r.observeConfig(ctx, seen); err != nil {
		return err
	}
	figures, err := qs.figures(ctx)
	if err != nil {
		seen.in.StatsError = err.Error()
		return nil //nolint:nilerr // the core is told that nobody knows, and why
	}
	seen.in.Stats = figures
	return nil
}

// observeSource reads what waits elsewhere.
func (r *Reconciler) observeSource(ctx context.Context, seen *sight) error {
	if r.options.Sources == nil {
		seen.in.StatsError = "this operator reads no sources"
		seen.in.Problem = &pool.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: "spec.source: " + seen.in.StatsError + "; give queues"}
		return nil
	}
	figures, err := r.options.Sources.ReadBacklog(ctx, seen.in.Pool.Namespace, seen.in.Pool.Spec.Source)
	if err != nil {
		seen.in.StatsError = err.Error()
		return nil //nolint:nilerr // the core is told that nobody knows, and why
	}
	if !figures.InFlightKnown { // the workers' word is all there is
		for i := range seen.in.Workers {
			if stats := seen.in.Workers[i].Stats; stats != nil {
				figures.InFlight += stats.InFlight
			}
		}
	}
	seen.in.Stats = figures
	return nil
}

// queues of the pool, or what is wrong with them.
func (r *Reconciler) queues(ctx context.Context, seen *sight) (*queues, *pool.Problem, error) {
	wp := seen.in.Pool
	found := &queues{}
	var key brokerconn.BrokerKey
	for i, wanted := range wp.Spec.Queues {
		q := &v1alpha1.Queue{}
		err := r.client.Get(ctx, types.NamespacedName{Namespace: wp.Namespace, Name: wanted.Name}, q)
		if apierrors.IsNotFound(err) {
			return nil, &pool.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: fmt.Sprintf("spec.queues[%d]: Queue %q not found", i, wanted.Name)}, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading Queue %s: %w", wanted.Name, err)
		}
		selected, _ := policy.SelectPolicies(seen.policies.all, q.Labels) // the Queue's own controller tells of those that cannot be read
		effective := policy.EffectiveQueue(q, selected)
		line := r.brokers.Conn(wp.Namespace, effective.Broker)
		if i > 0 && line.Key != key {
			return nil, &pool.Problem{
				Reason:  v1alpha1.ReasonQueuesDiffer,
				Message: fmt.Sprintf("spec.queues[%d]: Queue %q is on another broker than %q: workers are connected to one", i, wanted.Name, wp.Spec.Queues[0].Name),
			}, nil
		}
		key = line.Key
		found.line = line
		found.all = append(found.all, poolQueue{q, queue.DesiredQueue(q, effective), max(wanted.Weight, 1)})
	}
	return found, nil, nil
}

// figures of all the queues together. If one cannot be read, none are known.
func (qs *queues) figures(ctx context.Context) (*pool.QueueStats, error) {
	sum := &pool.QueueStats{InFlightKnown: true}
	arrived, finished := int64(0), int64(0)
	for i := range qs.all {
		q := &qs.all[i]
		f, err := qs.line.Stats(ctx, q.wanted.Name, figuresAge)
		if err != nil {
			return nil, fmt.Errorf("reading the figures of Queue %s: %w", q.object.Name, err)
		}
		if !q.wanted.Paused { // what waits there no worker is given
			sum.Backlog += f.Ready
			if !f.OldestReadyTime.IsZero() {
				sum.OldestAge = max(sum.OldestAge, f.MeasuredTime.Sub(f.OldestReadyTime))
			}
		}
		sum.InFlight += f.InFlight
		sum.Delayed += f.Delayed
		sum.Lease = max(sum.Lease, q.wanted.Lease)
		came := int64(min(f.TotalArrivals, 1<<62))
		arrived += came
		finished += max(0, came-f.Ready-f.InFlight-f.Delayed)
		if wait := q.object.Status.Wait; wait != nil && wait.P95 != nil && (sum.WaitP95 == nil || wait.P95.Duration > *sum.WaitP95) {
			sum.WaitP95 = &wait.P95.Duration
		}
	}
	sum.Arrived, sum.Finished = &arrived, &finished
	return sum, nil
}

// limits of all queues together: there is one only if each has one.
func (qs *queues) limits() pool.QueueLimits {
	var sum pool.QueueLimits
	rated, bounded := true, true
	for i := range qs.all {
		q := &qs.all[i].wanted
		if q.RateLimit != nil {
			sum.RatePerSecond += float64(q.RateLimit.Limit) / q.RateLimit.Per.Seconds()
		}
		sum.MaxInFlight += int64(q.MaxInFlight)
		rated, bounded = rated && q.RateLimit != nil, bounded && q.MaxInFlight > 0
	}
	if !rated {
		sum.RatePerSecond = 0
	}
	if !bounded {
		sum.MaxInFlight = 0
	}
	return sum
}

// sleep has the broker tell of the first message, if the pool has no workers.
func (r *Reconciler) sleep(wp *v1alpha1.WorkerPool, seen *sight, plan *pool.Decision) {
	if seen.queues == nil {
		return
	}
	var names []string
	for i := range seen.queues.all {
		names = append(names, seen.queues.all[i].wanted.Name)
	}
	r.known.listens(wp, seen.queues.line.Key, names)
	// What waits already, and is not worked on, would wake the pool again and again.
	waits := seen.in.Stats == nil || seen.in.Stats.Backlog > 0
	if wp.Spec.Autoscaling == nil || plan.Status.Desired > 0 || waits {
		return
	}
	for i := range seen.queues.all {
		if q := &seen.queues.all[i].wanted; !q.Paused {
			seen.queues.line.NotifyWhenReady(q.Name)
		}
	}
}
