package agenticsession

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// observe gathers what is known of the session without asking the API server.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.AgenticSession) (session.Observation, error) {
	in := session.Observation{
		Session: s.DeepCopy(), Now: r.clock.Now(), CreatedJobs: r.created.of(s),
		Answers: session.Answers{Jobs: map[string]*batchv1.Job{}},
	}
	runner := &v1alpha1.SessionRunner{}
	found, err := getIfExists(ctx, r.client, s.Namespace, s.Spec.Runner, runner)
	if err != nil {
		return in, err
	}
	if found {
		in.Runner = runner
	}
	policy := &networkingv1.NetworkPolicy{}
	found, err = getIfExists(ctx, r.options.Children, s.Namespace, session.NetworkPolicyName(s.Name), policy)
	if err != nil {
		return in, err
	}
	if found {
		in.NetworkPolicy = policy
	}
	if err := r.observeJobs(ctx, r.options.Children, &in, client.MatchingFields{uidIndex: string(s.UID)}); err != nil {
		return in, err
	}
	if err := r.observeWorkspace(ctx, &in); err != nil {
		return in, err
	}
	return in, r.observeActivity(ctx, &in)
}

// getIfExists reads an object; a failed read is an error, and one that is not there none.
func getIfExists(ctx context.Context, reader client.Reader, namespace, name string, into client.Object) (found bool, err error) {
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return true, nil
}

// observeJobs lists the session's Jobs and their Pods.
func (r *Reconciler) observeJobs(ctx context.Context, reader client.Reader, in *session.Observation, which client.ListOption) error {
	var jobs batchv1.JobList
	if err := reader.List(ctx, &jobs, client.InNamespace(in.Session.Namespace), which); err != nil {
		return fmt.Errorf("listing owned Jobs: %w", err)
	}
	in.Jobs = nil
	for i := range jobs.Items {
		if session.IsControlledBy(in.Session, &jobs.Items[i]) {
			in.Jobs = append(in.Jobs, &jobs.Items[i])
		}
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(in.Session.Namespace), which); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	in.Pods = r.departed.withDeletedPod(pods.Items, in.Session)
	return nil
}

// observeWorkspace reads the session that this one continues, and looks for another one at
// work in the same workspace.
func (r *Reconciler) observeWorkspace(ctx context.Context, in *session.Observation) error {
	s := in.Session
	claim := s.Status.WorkspaceClaim
	if s.Spec.ContinueFrom != nil {
		parent := &v1alpha1.AgenticSession{}
		found, err := getIfExists(ctx, r.client, s.Namespace, s.Spec.ContinueFrom.Name, parent)
		if err != nil {
			return err
		}
		if found {
			in.Parent = parent
			if claim == "" {
				claim = parent.Status.WorkspaceClaim
			}
		}
	}
	if claim == "" {
		return nil
	}
	if in.WorkspaceUser = r.workspaces.userOf(s, claim); in.WorkspaceUser != "" {
		return nil
	}
	var sharers v1alpha1.AgenticSessionList
	if err := r.client.List(ctx, &sharers, client.InNamespace(s.Namespace), client.MatchingFields{claimIndex: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the sessions of a workspace: %w", err)
	}
	for i := range sharers.Items {
		if other := &sharers.Items[i]; other.UID != s.UID && other.Status.Job != "" {
			in.WorkspaceUser = other.Name
		}
	}
	return nil
}

// observeActivity reads the runner's Lease, if what it says matters.
func (r *Reconciler) observeActivity(ctx context.Context, in *session.Observation) error {
	if in.Runner == nil || !in.Runner.Spec.ActivityLease || in.Session.Status.Job == "" {
		return nil
	}
	lease := &coordinationv1.Lease{}
	found, err := getIfExists(ctx, r.options.Children, in.Session.Namespace, session.LeaseName(in.Session.Name), lease)
	if err != nil || !found || !session.IsControlledBy(in.Session, lease) {
		return err
	}
	in.Activity = &session.Activity{FinishedJob: lease.Annotations[session.AnnotationRunFinished]}
	if lease.Spec.RenewTime != nil {
		in.Activity.RenewTime = lease.Spec.RenewTime.Time
	}
	return nil
}

// answerQuestion finds out, live, what the core must know.
func (r *Reconciler) answerQuestion(ctx context.Context, in *session.Observation, question *session.Question) error {
	if question.AllJobs {
		which := client.MatchingLabels{session.LabelSessionUID: string(in.Session.UID)}
		if err := r.observeJobs(ctx, r.live, in, which); err != nil {
			return err
		}
		in.Answers.Listed = true
		return nil
	}
	job := &batchv1.Job{}
	found, err := getIfExists(ctx, r.live, in.Session.Namespace, question.JobName, job)
	if err != nil {
		return err
	}
	if !found || !session.IsControlledBy(in.Session, job) {
		job = nil // making ours will tell of one that is somebody else's
	}
	in.Answers.Jobs[question.JobName] = job
	return nil
}
