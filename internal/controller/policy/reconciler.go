// Package policy tells in each Policy's status whom it says something to. What a Policy
// says is carried out elsewhere, by the controllers of Queues and WorkerPools.
package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/policy"
)

// Secrets are not watched: that would take the permission to list them all. Those that were
// fine are read again after soundFor, others after brokenFor.
const (
	soundFor  = 5 * time.Minute
	brokenFor = 15 * time.Second
)

// knownBrokers is of how many default brokers it is remembered what their Secrets say.
const knownBrokers = 1024

// Reconciler reconciles Policies.
type Reconciler struct {
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	// brokers are the problems that default brokers were last seen to have, by
	// connection.Key. Replicas come and go by the second, and Secrets do not.
	brokers *cache.LRUExpireCache
}

// New returns a Reconciler that works through the manager's clients.
func New(mgr ctrl.Manager) *Reconciler {
	return &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("policy-controller"),
		brokers:  cache.NewLRUExpireCache(knownBrokers),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies;queues;workerpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=policies/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile tells whom one Policy says something to.
func (r *Reconciler) Reconcile(ctx context.Context, p *v1alpha1.Policy) (ctrl.Result, error) {
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // it goes
	}
	seen, again, err := r.observe(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	before, after := p.DeepCopy(), p.DeepCopy()
	after.Status = policy.Status(p, seen)
	if err := kube.PatchStatus(ctx, r.client, before, after); err != nil {
		return ctrl.Result{}, fmt.Errorf("patching status: %w", err)
	}
	if is, troubled := policy.Troubled(&before.Status, &after.Status); troubled {
		r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Observe", "%s", is.Message)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// observe gathers what is in the Policy's namespace, and tells when to look again although
// nothing was heard of.
func (r *Reconciler) observe(ctx context.Context, p *v1alpha1.Policy) (*policy.Observation, time.Duration, error) {
	here := client.InNamespace(p.Namespace)
	var queues v1alpha1.QueueList
	if err := r.client.List(ctx, &queues, here, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing Queues: %w", err)
	}
	var pools v1alpha1.WorkerPoolList
	if err := r.client.List(ctx, &pools, here, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing WorkerPools: %w", err)
	}
	seen := &policy.Observation{Queues: queues.Items, WorkerPools: pools.Items}
	if p.Spec.Defaults == nil || p.Spec.Defaults.Broker == nil {
		return seen, 0, nil
	}
	var err error
	if seen.BrokerProblem, err = r.broker(ctx, p.Namespace, p.Spec.Defaults.Broker); err != nil {
		return nil, 0, err
	}
	return seen, holdsFor(seen.BrokerProblem), nil
}

// broker is what is wrong with the Secrets of a default broker; nil if nothing is.
func (r *Reconciler) broker(ctx context.Context, namespace string, b *v1alpha1.Broker) (*policy.Problem, error) {
	key := brokerconn.BrokerKeyOf(namespace, b)
	if known, is := r.brokers.Get(key); is {
		problem, _ := known.(*policy.Problem)
		return problem, nil
	}
	_, err := brokerconn.ReadCredentials(ctx, r.live, namespace, b)
	var problem *policy.Problem
	if wrong := (*brokerconn.ConnectionError)(nil); errors.As(err, &wrong) {
		problem = &policy.Problem{Reason: wrong.Reason, Message: "spec.defaults.broker: " + wrong.Error()}
	} else if err != nil {
		return nil, err // a failed read tells nothing
	}
	// The pass that is due then reads anew.
	r.brokers.Add(key, problem, holdsFor(problem)-time.Second)
	return problem, nil
}

func holdsFor(problem *policy.Problem) time.Duration {
	if problem != nil {
		return brokenFor
	}
	return soundFor
}
