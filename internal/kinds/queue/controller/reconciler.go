// Package controller reconciles Queues: it creates each queue on its broker, keeps it as specified, and reports its state.
// Package internal/kinds/queue makes the decisions. Requests to brokers are sent outside the reconciliation, because a broker
// may not answer.
//
// A busy queue is read every few seconds and an empty queue once a minute, because the broker reports its next message. Package
// brokerconn checks once for all queues whether a broker answers.
package controller

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/bulkhead"
)

// Limits over all Queues, per second. Beyond statsWriteRate, a status in which only stats changed is stored later. Beyond
// routineEventRate, events that all Queues of a broker have at once are left out: the conditions show the same.
const (
	statsWriteRate    = 20
	statsWriteBurst   = 50
	routineEventRate  = 5
	routineEventBurst = 50
)

const defaultSweepInterval = 2 * time.Minute

// Options of the controller.
type Options struct {
	// Concurrency is the number of Queues that are reconciled at the same time.
	Concurrency int
	// SweepInterval is the mean time between two comparisons of an unchanged queue with its spec; 0: two minutes.
	SweepInterval time.Duration
	// ClusterID identifies the cluster on brokers; empty: the UID of the namespace kube-system does.
	ClusterID string
}

// Reconciler reconciles Queues.
type Reconciler struct {
	kube.Clients

	brokers *brokerconn.Manager
	options Options

	policies *kube.NamespaceCache[policy.Set]
	answers  *bulkhead.Observer[*queue.Observation]

	statsWrites   *rate.Limiter
	routineEvents *rate.Limiter
	writeCache    *kube.WriteCache[*v1alpha1.Queue]
	tracked       *kube.Store[trackedQueue]
	clusterID     *kube.ClusterID
}

type trackedQueue struct {
	history queue.History
	// broker and name identify the queue in notifications of the broker.
	broker brokeraccess.Key
	name   string
}

// New returns a Reconciler that uses the clients of the manager and the connections of brokers.
func New(mgr ctrl.Manager, brokers *brokerconn.Manager, o Options) *Reconciler {
	if o.SweepInterval == 0 {
		o.SweepInterval = defaultSweepInterval
	}
	return &Reconciler{
		Clients:       kube.NewClients(mgr, "queue-controller"),
		brokers:       brokers,
		options:       o,
		clusterID:     kube.NewClusterID(o.ClusterID),
		policies:      kube.NewPolicyCache(mgr.GetClient()),
		answers:       bulkhead.NewObserver[*queue.Observation](bulkhead.DefaultLimits()),
		statsWrites:   rate.NewLimiter(statsWriteRate, statsWriteBurst),
		routineEvents: rate.NewLimiter(routineEventRate, routineEventBurst),
		writeCache:    kube.NewWriteCache[*v1alpha1.Queue](),
		tracked:       kube.NewStore[trackedQueue](),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies,verbs=list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=workerpools,verbs=list
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Decide implements kube.Kind.
func (*Reconciler) Decide(observation *queue.Observation) queue.Decision {
	return queue.Decide(*observation)
}

// Answer implements kube.Kind. Observe has executed all actions.
func (*Reconciler) Answer(context.Context, *queue.Observation, *queue.Decision) (bool, error) {
	return false, nil
}

// Finish implements kube.Kind.
func (*Reconciler) Finish(_ *v1alpha1.Queue, _ *queue.Observation, decision *queue.Decision) time.Duration {
	return decision.RequeueAfter
}

// Forget implements kube.Kind.
func (r *Reconciler) Forget(_ context.Context, key types.NamespacedName) error {
	r.tracked.Forget(key)
	r.answers.Forget(key)
	driftCorrections.Forget(key)
	delayedErasures.Forget(key)
	rescuedMessages.Forget(key)
	return nil
}
