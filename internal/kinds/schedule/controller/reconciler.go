// Package controller carries out the decisions of package schedule: it observes a Schedule and its runs, records the
// decision in the status, and creates and deletes runs.
package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/bulkhead"
)

// createdRequeue is when a run that was created is counted at the latest. The watch of runs usually triggers that sooner:
// when many Schedules are due at once, after all have created their runs.
const createdRequeue = time.Second

// Routine events of a namespace are limited to this rate per second. Warnings are never omitted.
const (
	routineEventRate  = 2
	routineEventBurst = 20
)

// Options configure a Reconciler.
type Options struct {
	// Concurrency is the maximum number of concurrent reconciliations.
	Concurrency int
	// SequentialJobs and AgenticSessions are true if the controllers of these kinds run. Other kinds are neither read
	// nor created.
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

// Reconcile makes the decisions about a Schedule that are due, and carries them out.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.Schedule{}
	if err := r.Client.Get(ctx, req.NamespacedName, s); err != nil {
		if apierrors.IsNotFound(err) {
			r.writeCache.Forget(req.NamespacedName)
			r.sends.Forget(req.NamespacedName)
			startedTotal.Forget(req.NamespacedName)
			finishedTotal.Forget(req.NamespacedName)
			missedTotal.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s = r.writeCache.Newest(s).DeepCopy()
	if !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes the runs
	}
	observation, err := r.observe(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision, err := r.decide(ctx, &observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.record(ctx, s, &decision); err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.act(ctx, s, &decision, observation.Schedule.ResourceVersion)
	if err != nil {
		return ctrl.Result{}, err
	}
	if result != (outcome{}) {
		observation.Schedule, observation.Now = s.DeepCopy(), r.Clock.Now()
		observation.Refusal, observation.Sent, observation.NotSent = result.refusal, result.sent, result.notSent
		if decision, err = r.decide(ctx, &observation); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.record(ctx, s, &decision); err != nil {
			return ctrl.Result{}, err
		}
	}
	if decision.CreateRun != nil {
		decision.RequeueAfter = createdRequeue
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// decide answers the questions of the core until it has no more.
func (r *Reconciler) decide(ctx context.Context, observation *schedule.Observation) (schedule.Decision, error) {
	for {
		decision := schedule.Decide(*observation)
		if decision.Question == nil {
			return decision, nil
		}
		run, err := r.readRun(ctx, observation.Schedule, decision.Question.RunNamed)
		if err != nil {
			return schedule.Decision{}, err
		}
		observation.Answers.Runs[decision.Question.RunNamed] = run
	}
}
