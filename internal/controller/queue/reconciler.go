// Package queue carries out what package queue of the core decides: it makes each Queue's
// queue on its broker, keeps it as the spec says, and tells what it sees there.
//
// A queue in which something is done is looked at every few seconds, an empty one once a
// minute: the broker tells of its next message. Whether the broker is there at all is
// watched once for all queues on it, by package connection.
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// Writes of a status in which nothing but figures has changed are held to this many a
// second, over all Queues; what is left out is written after the next look.
const (
	figureWrites = 20
	figureBurst  = 50
)

// Events about a broker, which all Queues on it have at once, are held to this many a
// second; the others leave it to the condition.
const (
	brokerEvents = 5
	brokerBurst  = 50
)

// Options of the controller.
type Options struct {
	// Concurrency is how many Queues are reconciled at once.
	Concurrency int
	// Sweep is about the time between two comparisons of a queue with its spec, when neither
	// has changed; 0: two minutes.
	Sweep time.Duration
}

// Reconciler reconciles Queues.
type Reconciler struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	keeper   *brokerconn.Manager
	options  Options
	figures  *rate.Limiter
	brokers  *rate.Limiter

	writeCache *kube.WriteCache[*v1alpha1.Queue]
	known      *known
}

// New returns a Reconciler that works through the manager's clients, and reaches brokers
// through the keeper.
func New(mgr ctrl.Manager, keeper *brokerconn.Manager, o Options) *Reconciler {
	if o.Sweep == 0 {
		o.Sweep = 2 * time.Minute
	}
	return &Reconciler{
		client:     mgr.GetClient(),
		live:       mgr.GetAPIReader(),
		recorder:   mgr.GetEventRecorder("queue-controller"),
		keeper:     keeper,
		options:    o,
		figures:    rate.NewLimiter(figureWrites, figureBurst),
		brokers:    rate.NewLimiter(brokerEvents, brokerBurst),
		writeCache: kube.NewWriteCache[*v1alpha1.Queue](),
		known:      newKnown(),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues/status,verbs=patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies,verbs=get;list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes one Queue as far as it goes now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	q := &v1alpha1.Queue{}
	if err := r.client.Get(ctx, req.NamespacedName, q); err != nil {
		if apierrors.IsNotFound(err) { // a failed read tells nothing
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	q = r.writeCache.Newest(q)
	effective, err := r.effective(ctx, q)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := &pass{Reconciler: r, q: q, line: r.keeper.Conn(q.Namespace, effective.Broker), state: r.known.of(req.NamespacedName)}
	p.seen = queue.Observation{Effective: *effective, Engine: p.line.Key.Engine, Memory: p.state.memory}
	r.known.on(req.NamespacedName, p.line.Key, queue.BrokerQueueName(q))
	if !q.DeletionTimestamp.IsZero() {
		result, err := p.remove(ctx)
		if err != nil {
			err = kube.RemoveFinalizerIfTerminating(ctx, r.live, r.client, p.q, v1alpha1.QueueFinalizer, err)
		}
		return result, err
	}
	return p.keep(ctx)
}

// pass is one look at one Queue.
type pass struct {
	*Reconciler
	q     *v1alpha1.Queue
	line  *brokerconn.Conn
	state *state
	seen  queue.Observation
	// lettersDone tells what was done with dead letters; nil: nothing was asked for.
	lettersDone *queue.Event
}

// keep makes the queue what it is to be, and tells how it stands.
func (p *pass) keep(ctx context.Context) (ctrl.Result, error) {
	engine, err := p.line.Engine()
	if errors.Is(err, brokerconn.ErrConnecting) {
		return ctrl.Result{}, nil // an event follows
	}
	if err == nil {
		if err := p.prepare(ctx); err != nil {
			return ctrl.Result{}, err
		}
		if err = p.look(ctx, engine); err == nil {
			err = p.seeToLetters(ctx, engine)
		}
	}
	p.judge(err)
	deferred, err := p.record(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := p.tellOfLetters(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: earlier(p.next(), deferred)}, nil //nolint:contextcheck // what next waits for outlives the pass
}

// prepare sees to it that what is about to be made on the broker will be removed again. A
// Queue that was deleted meanwhile, as a second leader may have, makes nothing.
func (p *pass) prepare(ctx context.Context) error {
	if err := p.patchFinalizer(ctx, controllerutil.AddFinalizer); err != nil {
		return fmt.Errorf("putting the finalizer on: %w", err)
	}
	if _, err := p.line.Stats(ctx, queue.BrokerQueueName(p.q), fresh); broker.ClassOf(err) != broker.ClassNotFound {
		return nil
	}
	current := &v1alpha1.Queue{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(p.q), current); err != nil {
		return fmt.Errorf("reading the Queue again: %w", err)
	}
	if current.UID != p.q.UID || current.Generation != p.q.Generation {
		return kube.ErrStale
	}
	return nil
}

// judge sorts what the broker, or the way to it, has refused.
func (p *pass) judge(err error) {
	switch {
	case err == nil:
	case answered(err):
		p.seen.Failure = err
		p.state.ensured = ensured{} // what was so is so no more
	default:
		p.doubt(err)
		p.seen.Unreachable = &queue.Trouble{Reason: brokerconn.ConditionReason(err), Message: err.Error()}
	}
}

// doubt has the line look whether its broker is there, unless it is the line that says so.
func (p *pass) doubt(err error) {
	if !errors.As(err, new(*brokerconn.ConnectionError)) {
		p.line.CheckHealth(err)
	}
}

// answered tells that the broker was there, and refused.
func answered(err error) bool {
	if errors.As(err, new(*brokerconn.ConnectionError)) {
		return false
	}
	class := broker.ClassOf(err)
	return class == broker.ClassInvalid || class == broker.ClassConflict || class == broker.ClassNotFound
}

// next is when to look again.
func (p *pass) next() time.Duration {
	if _, err := p.line.Engine(); err != nil {
		return lineInterval
	}
	if p.seen.Unreachable != nil || p.seen.Failure != nil {
		return retryAfter
	}
	if p.state.memory.Idle() {
		p.line.NotifyWhenReady(queue.BrokerQueueName(p.q))
	}
	return p.state.memory.Interval()
}

const (
	// retryAfter is when a queue is looked at again that its broker has refused.
	retryAfter = 15 * time.Second
	// lineInterval is when the line is asked for again that has no connection, so that it
	// goes on to try. That it has one is told at once.
	lineInterval = time.Minute
)

// record stores the status, then tells of it. It returns how long a write that may wait
// was put off.
func (p *pass) record(ctx context.Context) (time.Duration, error) {
	plan := queue.Decide(p.q, &p.seen)
	p.state.memory = plan.Memory
	done := queue.Done(p.seen.Outcome, &p.q.Status, &plan.Status)
	if plan.Minor && len(done) == 0 && !p.figures.Allow() {
		return retryAfter, nil
	}
	before, after := p.q.DeepCopy(), p.q.DeepCopy()
	after.Status = plan.Status
	if err := kube.PatchStatus(ctx, p.client, before, after); err != nil {
		return 0, fmt.Errorf("patching status: %w", err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		p.wrote(after)
	}
	for _, event := range append(done, queue.Events(&before.Status, &after.Status)...) {
		p.emit(event)
	}
	return 0, nil
}

func (p *pass) emit(e queue.Event) {
	if e.OfBroker() && !p.brokers.Allow() {
		return
	}
	p.recorder.Eventf(p.q, nil, e.Type, e.Reason, e.Action, "%s", e.Message)
}

// wrote takes over what the API server stored.
func (p *pass) wrote(stored *v1alpha1.Queue) {
	p.q = stored
	p.writeCache.Record(stored)
}

func (p *pass) patchFinalizer(ctx context.Context, change func(client.Object, string) bool) error {
	q := p.q.DeepCopy()
	err := kube.PatchMetadata(ctx, p.client, q, func(object client.Object) { change(object, v1alpha1.QueueFinalizer) })
	if err == nil && q.ResourceVersion != p.q.ResourceVersion && q.DeletionTimestamp.IsZero() {
		p.wrote(q)
	}
	return err
}

// earlier is the shorter of two waits, where 0 is for ever.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
