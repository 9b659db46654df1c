// Package controller carries out the decisions of package schedule: it observes a Schedule and its runs, records the
// decision in the status, and creates and deletes runs.
package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/bulkhead"
)

// createdRequeue is when a created run is counted at the latest. The watch of runs usually triggers the count sooner, but when
// many Schedules are due at once, only after all have created their runs.
const createdRequeue = 5 * time.Second

// Routine events of a namespace are limited to this rate per second. Warnings are never omitted.
const (
	routineEventRate  = 2
	routineEventBurst = 20
)

// Options configure a Reconciler.
type Options struct {
	// Concurrency is the maximum number of concurrent reconciliations.
	Concurrency int
	// SequentialJobs and AgenticSessions are true if the controllers of these kinds run. Other kinds are neither read nor
	// created.
	SequentialJobs, AgenticSessions bool
	// Brokers are the connections to the brokers of Queues; nil if the controller of Queues does not run.
	Brokers *brokerconn.Manager
}

// Reconciler reconciles Schedules.
type Reconciler struct {
	kube.Clients

	options       Options
	routineEvents *kube.NamespaceLimiter
	sends         *bulkhead.Observer[answer]
	writeCache    *kube.WriteCache[*v1alpha1.Schedule]
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, options Options) *Reconciler {
	return &Reconciler{
		Clients: kube.NewClients(mgr, "schedule-controller"), options: options,
		routineEvents: kube.NewNamespaceLimiter(routineEventRate, routineEventBurst),
		sends:         bulkhead.NewObserver[answer](bulkhead.DefaultLimits()), writeCache: kube.NewWriteCache[*v1alpha1.Schedule](),
	}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=schedules,verbs=get;list;watch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=schedules/status,verbs=update
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs;agenticsessions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=queues;policies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Decide implements kube.Kind.
func (*Reconciler) Decide(observation *schedule.Observation) schedule.Decision {
	return schedule.Decide(*observation)
}

// Finish implements kube.Kind.
func (*Reconciler) Finish(_ *v1alpha1.Schedule, _ *schedule.Observation, decision *schedule.Decision) time.Duration {
	if decision.CreateRun != nil {
		return createdRequeue
	}
	return decision.RequeueAfter
}

// Forget implements kube.Kind.
func (r *Reconciler) Forget(_ context.Context, key types.NamespacedName) error {
	r.sends.Forget(key)
	startedTotal.Forget(key)
	finishedTotal.Forget(key)
	missedTotal.Forget(key)
	return nil
}
