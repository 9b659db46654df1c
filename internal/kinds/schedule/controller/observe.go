package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Observe implements kube.Kind.
func (r *Reconciler) Observe(ctx context.Context, s *v1alpha1.Schedule) (*schedule.Observation, error) {
	if !s.DeletionTimestamp.IsZero() {
		return nil, nil // the garbage collector deletes the runs
	}
	observation := &schedule.Observation{
		Schedule: s.DeepCopy(), Now: r.Clock.Now(), KindDisabled: !r.isEnabled(&s.Spec),
		Answers: map[string]*schedule.Run{},
	}
	if observation.KindDisabled {
		return observation, nil
	}
	var err error
	if s.Spec.Message != nil {
		_, observation.NotReady, err = r.queueOf(ctx, s)
		return observation, err
	}
	observation.Runs, err = r.listRuns(ctx, s)
	return observation, err
}

// Answer implements kube.Kind.
func (r *Reconciler) Answer(ctx context.Context, observation *schedule.Observation, decision *schedule.Decision) (bool, error) {
	if decision.Question == "" {
		return false, nil
	}
	run, err := r.readRun(ctx, observation.Schedule, decision.Question)
	observation.Answers[decision.Question] = run
	return true, err
}

// isEnabled reports whether the controller of the runs' kind runs.
func (r *Reconciler) isEnabled(spec *v1alpha1.ScheduleSpec) bool {
	switch {
	case spec.AgenticSession != nil:
		return r.options.AgenticSessions
	case spec.Message != nil:
		return r.options.Brokers != nil
	default:
		return r.options.SequentialJobs
	}
}

// listRuns returns the runs of a Schedule in the cache.
func (r *Reconciler) listRuns(ctx context.Context, s *v1alpha1.Schedule) ([]schedule.Run, error) {
	var list client.ObjectList = &v1alpha1.SequentialJobList{}
	if s.Spec.AgenticSession != nil {
		list = &v1alpha1.AgenticSessionList{}
	}
	if err := r.Client.List(ctx, list, client.InNamespace(s.Namespace), client.MatchingFields{scheduleIndex: string(s.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing %ss of the Schedule: %w", schedule.KindOf(&s.Spec), err)
	}
	var runs []schedule.Run
	err := meta.EachListItem(list, func(object runtime.Object) error {
		runs = append(runs, runOf(object))
		return nil
	})
	return runs, err
}

// readRun reads a run from the API server. It returns nil if no run of this name belongs to the Schedule.
func (r *Reconciler) readRun(ctx context.Context, s *v1alpha1.Schedule, name string) (*schedule.Run, error) {
	var object client.Object = &v1alpha1.SequentialJob{}
	if s.Spec.AgenticSession != nil {
		object = &v1alpha1.AgenticSession{}
	}
	found, err := kube.GetIfExists(ctx, r.Live, s.Namespace, name, object)
	if err != nil || found == nil || !metav1.IsControlledBy(found, s) {
		return nil, err
	}
	return new(runOf(found)), nil
}
