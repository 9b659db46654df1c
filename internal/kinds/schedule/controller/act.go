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

// act carries out a decision whose status is recorded. readVersion is the resourceVersion of the object that the decision
// is based on.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.Schedule, decision *schedule.Decision, readVersion string) (outcome, error) {
	if decision.HasActions() && s.ResourceVersion == readVersion {
		if err := kube.AssertFresh(ctx, r.Live, r.Client, s); err != nil {
			return outcome{}, err
		}
	}
	for _, run := range decision.DeleteRuns {
		object, isObject := run.Object.(client.Object)
		if !isObject {
			continue
		}
		var err error
		if run.IsFinished { // only the version that was observed: a user may have run it again since
			err = kube.DeleteVersion(ctx, r.Client, object, metav1.DeletePropagationBackground)
		} else {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, object,
				client.Preconditions{UID: &run.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		}
		if err != nil {
			return outcome{}, err
		}
	}
	if decision.CreateRun == nil {
		return outcome{}, nil
	}
	if s.Spec.Job != nil {
		return r.sendJob(ctx, s, decision)
	}
	refusal, err := r.createRun(ctx, s, decision.CreateRun)
	return outcome{refusal: refusal}, err
}

// createRun creates a run. If it exists and belongs to the Schedule, an earlier reconciliation created it. A refusal is not
// an error: the core decides about it.
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
