package controller

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Act implements kube.Kind.
func (r *Reconciler) Act(ctx context.Context, s *v1alpha1.Schedule, observation *schedule.Observation, decision *schedule.Decision) (bool, error) {
	for _, run := range decision.DeleteRuns {
		object, isObject := run.Object.(client.Object)
		if !isObject {
			continue
		}
		var err error
		if run.IsFinished { // only the observed version: a user may have run it again since
			err = kube.DeleteVersion(ctx, r.Client, object, metav1.DeletePropagationBackground)
		} else {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, object,
				client.Preconditions{UID: &run.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		}
		if err != nil {
			return false, err
		}
	}
	if decision.CreateRun == nil {
		return false, nil
	}
	var result outcome
	var err error
	if s.Spec.Job != nil {
		result, err = r.sendJob(ctx, s, decision)
	} else {
		result.refusal, err = r.createRun(ctx, s, decision.CreateRun)
	}
	if err != nil || result == (outcome{}) {
		return false, err
	}
	observation.Schedule, observation.Now = s.DeepCopy(), r.Clock.Now()
	observation.Refusal, observation.Sent, observation.NotSent = result.refusal, result.sent, result.notSent
	return true, nil
}

// createRun creates a run. A run that exists and belongs to the Schedule was created by an earlier reconciliation. A refusal is
// not an error: package schedule decides about it.
func (r *Reconciler) createRun(ctx context.Context, s *v1alpha1.Schedule, pending *v1alpha1.PendingRun) (*decision.Refusal, error) {
	refused := decision.Refusal{Kind: schedule.KindOf(&s.Spec), Name: pending.Name}
	object, err := schedule.NewRun(s, pending.Name, pending.ScheduledTime.Time)
	if err != nil {
		refused.Class, refused.Message = decision.Invalid, err.Error()
		return &refused, nil //nolint:nilerr // the core decides about it
	}
	err = r.Client.Create(ctx, object)
	switch {
	case apierrors.IsAlreadyExists(err):
		existing, err := r.readRun(ctx, s, pending.Name)
		if err != nil || existing != nil {
			return nil, err
		}
		return decision.NameTaken(refused, "Schedule"), nil
	case err != nil:
		return kube.AsRefusal(err, refused)
	}
	startDelay.Observe(max(r.Clock.Now().Sub(pending.ScheduledTime.Time), 0).Seconds())
	return nil, nil
}
