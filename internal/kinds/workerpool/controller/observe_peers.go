package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
)

const (
	// workerTimeout is the time in which all workers of a pool together must answer.
	workerTimeout = 1500 * time.Millisecond
	// queuesTimeout is the time in which all queues of a pool must be read. A started request has its own timeout.
	queuesTimeout = 3 * time.Second
	// maxStatsAge is the maximum age of stats that were read for other objects.
	maxStatsAge = time.Second
)

// peerObservation has the answers of the workers and queues of a pool.
type peerObservation struct {
	// workers are the stats by Pod; nil if a worker did not answer.
	workers map[string]*workerpool.WorkerStats
	// stats of the queues or of the source; if nil, statsError is why.
	stats      *workerpool.QueueStats
	statsError string
}

type observedQueues struct {
	conn  *brokerconn.Conn
	names []string
	all   []observedQueue
}

type observedQueue struct {
	object *v1alpha1.Queue
	// broker according to the Queue and its Policies.
	broker *v1alpha1.Broker
	config broker.QueueConfig
	weight int32
}

// observePeers adds the answers of the workers and queues. It returns kube.ErrPending if they have not answered since
// the last reconciliation.
func (r *Reconciler) observePeers(ctx context.Context, observed *Observed) error {
	subject, err := observed.peerSubject()
	if err != nil {
		return err
	}
	peers, found, err := r.peers.Observe(ctx, client.ObjectKeyFromObject(observed.Pool), subject, observed.peerName(), func(ctx context.Context) (*peerObservation, error) {
		return r.askPeers(ctx, observed), nil
	})
	if err != nil {
		return err
	}
	if !found {
		return kube.ErrPending
	}
	for i := range observed.Workers {
		observed.Workers[i].Stats = peers.workers[observed.Workers[i].Name]
	}
	if observed.StatsError == "" {
		observed.Stats, observed.StatsError = peers.stats, peers.statsError
	}
	observed.Now = r.Clock.Now()
	return nil
}

func (o *Observed) peerSubject() (string, error) {
	source, err := json.Marshal(o.Pool.Spec.Source)
	if err != nil {
		return "", fmt.Errorf("encoding spec.source: %w", err)
	}
	parts := []string{string(o.Pool.UID), o.peerName(), string(source)}
	if o.queues != nil {
		parts = append(parts, o.queues.names...)
	}
	for _, name := range slices.Sorted(maps.Keys(o.pods)) {
		parts = append(parts, name+"="+o.pods[name].Status.PodIP)
	}
	return strings.Join(parts, " "), nil
}

// peerName identifies the broker or source that the pool depends on, within its namespace.
func (o *Observed) peerName() string {
	switch {
	case o.Pool.Spec.Source != nil:
		return brokerconn.SourceName(o.Pool.Namespace, o.Pool.Spec.Source)
	case o.queues != nil:
		return o.queues.conn.Key.String()
	}
	return ""
}

// askPeers sends the drain requests of the last reconciliation, then reads the workers, then the queues. The order
// ensures that a worker that resumes is not observed as drained, and that the broker counts all messages that the
// workers report.
func (r *Reconciler) askPeers(ctx context.Context, observed *Observed) *peerObservation {
	r.sendDrainRequests(ctx, observed, observed.lastDrainRequests)
	peers := &peerObservation{workers: r.readWorkers(ctx, observed)}
	var err error
	switch {
	case observed.Pool.Spec.Source != nil && r.options.Sources != nil:
		peers.stats, err = r.options.Sources.ReadBacklog(ctx, observed.Pool.Namespace, observed.Pool.Spec.Source)
	case observed.queues != nil:
		peers.stats, err = observed.queues.readStats(ctx)
	}
	if err != nil {
		peers.statsError = err.Error()
	}
	return peers
}

// sendDrainRequests requests workers to drain, undrain or stop. If a request fails, the next reconciliation repeats it.
func (r *Reconciler) sendDrainRequests(ctx context.Context, observed *Observed, requests []workerpool.DrainRequest) {
	ctx, cancel := context.WithTimeout(ctx, workerTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(workerclient.MaxConcurrentRequestsPerPool)
	for _, request := range requests {
		pod := observed.pods[request.Worker]
		if pod == nil || pod.Status.PodIP == "" {
			continue
		}
		group.Go(func() error {
			if err := r.sendDrainRequest(ctx, observed, pod, request); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("Could not send a drain request to a worker", "pod", pod.Name, "drain", request.Drain, "stop", request.Stop, "error", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // no request returns an error
}

func (r *Reconciler) sendDrainRequest(ctx context.Context, observed *Observed, pod *corev1.Pod, request workerpool.DrainRequest) error {
	if request.Stop {
		secret := ""
		for i := range observed.Revisions {
			if observed.Revisions[i].Hash == pod.Labels[workerpool.LabelRevision] {
				secret = observed.Revisions[i].PreStopSecret
			}
		}
		return r.workers.Stop(ctx, r.options.Address(pod), secret)
	}
	send, action := r.workers.Resume, adminauth.ActionResume
	if request.Drain {
		send, action = r.workers.Drain, adminauth.ActionDrain
	}
	token := ""
	if observed.adminKeys != nil {
		var err error
		if token, err = observed.adminKeys.Sign(adminauth.Request{Worker: pod.Namespace + "/" + pod.Name, Action: action}, r.Clock.Now()); err != nil {
			return err
		}
	}
	return send(ctx, r.options.Address(pod), token)
}

func (r *Reconciler) readWorkers(ctx context.Context, observed *Observed) map[string]*workerpool.WorkerStats {
	ctx, cancel := context.WithTimeout(ctx, workerTimeout)
	defer cancel()
	stats := make([]*workerpool.WorkerStats, len(observed.Workers))
	var group errgroup.Group
	group.SetLimit(workerclient.MaxConcurrentRequestsPerPool)
	// The order is random, so that workers that do not answer do not always delay the same other workers.
	for _, i := range rand.Perm(len(observed.Workers)) { //nolint:gosec // no secret depends on it
		group.Go(func() error {
			stats[i] = r.readWorkerStats(ctx, observed.pods[observed.Workers[i].Name], len(observed.Pool.Spec.Queues))
			return nil
		})
	}
	_ = group.Wait() // no request returns an error
	workers := map[string]*workerpool.WorkerStats{}
	for i := range observed.Workers {
		workers[observed.Workers[i].Name] = stats[i]
	}
	return workers
}

// readWorkerStats returns nil if the worker does not answer, because it may be starting or stopping.
func (r *Reconciler) readWorkerStats(ctx context.Context, worker *corev1.Pod, queues int) *workerpool.WorkerStats {
	if worker.Status.PodIP == "" {
		return nil
	}
	s, err := r.workers.FetchStats(ctx, r.options.Address(worker))
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Could not read the stats of a worker", "pod", worker.Name, "error", err.Error())
		return nil
	}
	return &workerpool.WorkerStats{
		Attached: s.IsAttached(queues), Recent: (*workerpool.RecentAttempts)(s.Recent),
		Draining: s.IsDraining(), Drained: s.IsDrained(), InFlight: s.InFlight, Prefetched: s.Prefetched, Succeeded: s.Succeeded, Failed: s.Failed,
		Snoozed: s.Snoozed, Returned: s.Returned, Unavailable: s.Unavailable, BreakerOpen: s.IsBreakerOpen(),
	}
}

// readStats reads the stats of all queues. If one queue cannot be read, all stats are unknown.
func (qs *observedQueues) readStats(ctx context.Context) (*workerpool.QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, queuesTimeout)
	defer cancel()
	var readings []workerpool.QueueReading
	for i := range qs.all {
		q := &qs.all[i]
		stats, err := qs.conn.Stats(ctx, q.config.Name, maxStatsAge)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("reading the stats of Queue %s: %w", q.object.Name, err)
		}
		reading := workerpool.QueueReading{Queue: q.config, Stats: stats}
		if wait := q.object.Status.WaitP95; wait != nil {
			reading.WaitP95 = &wait.Duration
		}
		readings = append(readings, reading)
	}
	return workerpool.CombineReadings(readings), nil
}

func (r *Reconciler) observeQueues(ctx context.Context, observed *Observed) error {
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
	var configs []broker.QueueConfig
	for i := range queues.all {
		configs = append(configs, queues.all[i].config)
	}
	observed.Limits = workerpool.CombineLimits(configs)
	if err := r.observeConfig(ctx, observed); err != nil {
		return err
	}
	observed.checkOwnership()
	return nil
}

// checkOwnership ensures that the pool reads and consumes only queues that its Queues own. A problem with the broker
// takes precedence.
func (o *Observed) checkOwnership() {
	for i, q := range o.queues.all {
		if !queue.OwnsQueue(q.object, q.broker) {
			o.StatsError = fmt.Sprintf("spec.queues[%d]: Queue %q does not own a queue on its broker yet; see its conditions", i, q.object.Name)
			o.setProblem(v1alpha1.ReasonQueueNotReady, o.StatsError)
			o.queues = nil
			return
		}
	}
}

func (r *Reconciler) findQueues(ctx context.Context, observed *Observed) (*observedQueues, *decision.Problem, error) {
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
		config := queue.DesiredQueue(q, effective, "")
		found.names = append(found.names, config.Name)
		found.all = append(found.all, observedQueue{q, effective.Broker, config, max(ref.Weight, 1)})
	}
	return found, nil, nil
}
