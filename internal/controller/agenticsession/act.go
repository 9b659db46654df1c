package agenticsession

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/session"
)

// createdJob identifies a Job that this process created.
type createdJob struct {
	name string
	uid  types.UID
}

// act executes a decision whose status is recorded, and which is based on the version readVersion.
// It returns the object that the API server refused, if any; the core decides what that means.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision, readVersion string) (*core.Refusal, error) {
	changesJobs := len(decision.DeleteJobs) > 0 || decision.CreateJob != nil || decision.DeleteSession
	if changesJobs && s.ResourceVersion == readVersion { // no status write has proved that s is current
		if err := kube.AssertFresh(ctx, r.live, r.client, s); err != nil {
			return nil, err
		}
	}
	for _, job := range decision.DeleteJobs { // a Job that ended since it was observed has an outcome
		if err := kube.DeleteVersion(ctx, r.client, job, metav1.DeletePropagationForeground); err != nil {
			return nil, err
		}
	}
	if refusal, err := r.applyObjects(ctx, s, decision); refusal != nil || err != nil {
		return refusal, err
	}
	if decision.CreateJob != nil {
		if refusal, err := r.createJob(ctx, s, decision); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, r.cleanup(ctx, s, decision)
}

// cleanup deletes the old inputs, and the session at the end of its time to live.
func (r *Reconciler) cleanup(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision) error {
	if decision.DeleteSecret != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: decision.DeleteSecret}}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, secret)); err != nil {
			return fmt.Errorf("deleting unused inputs Secret %s: %w", decision.DeleteSecret, err)
		}
	}
	if decision.DeleteSession {
		return kube.DeleteVersion(ctx, r.client, s, metav1.DeletePropagationBackground)
	}
	return nil
}

// createJob creates the Job after a dry run of its Pod. The Job already exists if a reconciliation
// created it without receiving the answer, or if the cache is behind.
func (r *Reconciler) createJob(ctx context.Context, s *v1alpha1.AgenticSession, decision *session.Decision) (*core.Refusal, error) {
	err := r.client.Create(ctx, decision.DryRunPod.DeepCopy(), client.DryRunAll, fieldOwner)
	if refusal, err := asRefusal(err, "Pod", decision.DryRunPod.GenerateName); refusal != nil || err != nil {
		return refusal, err
	}
	job := decision.CreateJob.DeepCopy()
	err = r.client.Create(ctx, job, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		existing, err := kube.GetIfExists(ctx, r.live, job.Namespace, job.Name, &batchv1.Job{})
		switch {
		case err != nil:
			return nil, err
		case existing == nil:
			return nil, kube.ErrStale
		case !metav1.IsControlledBy(existing, s):
			return core.NameTaken(core.Refusal{Kind: "Job", Name: job.Name}, "AgenticSession"), nil
		}
		job = existing
	} else if refusal, err := asRefusal(err, "Job", job.Name); refusal != nil || err != nil {
		return refusal, err
	}
	r.createdJobs.Set(s, createdJob{job.Name, job.UID})
	return nil, nil
}

// asRefusal returns a refusal if the API server does not accept the object as it is, and any other
// error as an error.
func asRefusal(err error, kind, name string) (*core.Refusal, error) {
	if refusal := core.AsRefusal(err, core.Refusal{Kind: kind, Name: name}); refusal != nil || err == nil {
		return refusal, nil
	}
	if apierror.ClassOf(err) == apierror.NamespaceTerminating {
		return nil, kube.ErrStale // the session will be deleted too
	}
	return nil, fmt.Errorf("creating or applying %s %s: %w", kind, name, err)
}
