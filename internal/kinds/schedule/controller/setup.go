package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// scheduleIndex indexes runs by the UID of their Schedule, and queueIndex Schedules by the Queue of their messages.
const (
	scheduleIndex = "schedule-uid"
	queueIndex    = "spec.message.queueRef.name"
)

// concurrencyFactor is how many times more Schedules than objects of other kinds are reconciled concurrently. Runs that are due
// at the same time would otherwise wait for the API server as long as the work of existing runs takes.
const concurrencyFactor = 5

// SetupWithManager registers the reconciler with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := r.writeCache.Follow(context.Background(), mgr.GetCache(), &v1alpha1.Schedule{}); err != nil {
		return err
	}
	if err := metric.Register(metric.NewSumCollector(mgr.GetCache(), &v1alpha1.ScheduleList{}, sumSchedules, schedulesGauge)); err != nil {
		return err
	}
	controller := ctrl.NewControllerManagedBy(mgr).
		Named("schedule").
		For(&v1alpha1.Schedule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(kube.ControllerOptions(concurrencyFactor * r.options.Concurrency))
	var kinds []client.Object
	if r.options.SequentialJobs {
		kinds = append(kinds, &v1alpha1.SequentialJob{})
	}
	if r.options.AgenticSessions {
		kinds = append(kinds, &v1alpha1.AgenticSession{})
	}
	for _, kind := range kinds {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), kind, scheduleIndex, scheduleUID); err != nil {
			return fmt.Errorf("indexing runs by their Schedule: %w", err)
		}
		owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.Schedule{}, handler.OnlyControllerOwner())
		controller.Watches(kind, owner, builder.WithPredicates(runChanged))
	}
	if r.options.Brokers != nil {
		if err := r.watchQueues(mgr, controller); err != nil {
			return err
		}
	}
	return controller.Complete(kube.RequeueOnConflict(&kube.Loop[*v1alpha1.Schedule, schedule.Observation, schedule.Decision]{
		Clients: r.Clients, Kind: r, Written: r.writeCache, New: func() *v1alpha1.Schedule { return &v1alpha1.Schedule{} },
		NeedsFresh: (*schedule.Decision).HasActions, IsDue: func(d *schedule.Decision) bool { return d.CreateRun != nil },
	}))
}

// watchQueues enqueues the Schedules of a Queue whose readiness changes, and Schedules whose broker answered.
func (r *Reconciler) watchQueues(mgr ctrl.Manager, controller *builder.Builder) error {
	if err := mgr.Add(r.sends); err != nil {
		return err
	}
	queueOf := func(object client.Object) []string {
		if s, isSchedule := object.(*v1alpha1.Schedule); isSchedule && s.Spec.Message != nil {
			return []string{s.Spec.Message.QueueRef.Name}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Schedule{}, queueIndex, queueOf); err != nil {
		return fmt.Errorf("indexing Schedules by their Queue: %w", err)
	}
	schedulesOfQueue := func(ctx context.Context, q client.Object) []reconcile.Request {
		return kube.RequestsForList(ctx, r.Client, &v1alpha1.ScheduleList{},
			client.InNamespace(q.GetNamespace()), client.MatchingFields{queueIndex: q.GetName()})
	}
	controller.WatchesRawSource(source.Func(r.sends.EnqueueTo)).
		Watches(&v1alpha1.Queue{}, handler.EnqueueRequestsFromMapFunc(schedulesOfQueue), builder.WithPredicates(readinessChanged))
	return nil
}

// readinessChanged matches changes of a Queue that decide whether messages can be sent to it.
var readinessChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return isReady(e.ObjectOld) != isReady(e.ObjectNew) || e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func isReady(object client.Object) bool {
	q, isQueue := object.(*v1alpha1.Queue)
	return isQueue && meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady)
}

// runChanged matches changes of a run that a decision depends on.
var runChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { // also a run that a user triggered, or that ended while the operator was away
		return scheduleUID(e.Object) != nil
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := runOf(e.ObjectOld), runOf(e.ObjectNew)
		return before.IsFinished != after.IsFinished || before.HasSucceeded != after.HasSucceeded || before.IsDeleted != after.IsDeleted ||
			before.IsArchiving != after.IsArchiving
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func runOf(object any) schedule.Run {
	switch run := object.(type) {
	case *v1alpha1.SequentialJob:
		return schedule.RunOfSequentialJob(run)
	case *v1alpha1.AgenticSession:
		return schedule.RunOfSession(run)
	default:
		return schedule.Run{}
	}
}

func scheduleUID(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
	if controller == nil || controller.Kind != "Schedule" || controller.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	return []string{string(controller.UID)}
}
