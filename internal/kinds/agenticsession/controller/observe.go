package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Observe implements kube.Kind.
func (r *Reconciler) Observe(ctx context.Context, s *v1alpha1.AgenticSession) (*agenticsession.Observation, error) {
	if !s.DeletionTimestamp.IsZero() { // the garbage collector deletes its objects
		return nil, r.restoreDefaultDeny(ctx, client.ObjectKeyFromObject(s))
	}
	r.forgetUnused(s)
	observation := &agenticsession.Observation{
		Session: s.DeepCopy(), Now: r.Clock.Now(), Network: r.options.Network, NetworkCheck: r.options.NetworkCheck,
		Answers: agenticsession.Answers{
			Jobs: map[string]*batchv1.Job{}, Claims: map[string]*metav1.PartialObjectMetadata{},
			Mounts: map[string][]corev1.Pod{}, Secrets: map[string]bool{},
		},
	}
	if job, found := r.createdJobs.Get(s); found {
		observation.CreatedJobs = map[string]types.UID{job.name: job.uid}
	}
	if observation.NetworkCheck.Image != "" {
		observation.NetworkCheck.Addresses = r.options.OperatorAddresses(ctx)
	}
	var err error
	if observation.Runner, err = kube.GetIfExists(ctx, r.Client, s.Namespace, s.Spec.Runner, &v1alpha1.SessionRunner{}); err != nil {
		return nil, err
	}
	if observation.Runner != nil && sessionrunner.UsesProxy(observation.Runner) {
		if observation.Keys, err = r.keys.Get(ctx); err != nil {
			return nil, err
		}
	}
	policies, err := r.policies.Get(ctx, s.Namespace)
	if err != nil {
		return nil, err
	}
	observation.Policies = policies.Select(s.Labels)
	if observation.Network.APIServer, err = r.apiServer.rules(ctx); err != nil {
		return nil, err
	}
	for _, selected := range []string{string(s.UID), agenticsession.AllSessions} {
		var policies networkingv1.NetworkPolicyList
		if err := r.Client.List(ctx, &policies, client.InNamespace(s.Namespace), client.MatchingFields{selectedIndex: selected}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing NetworkPolicies: %w", err)
		}
		observation.NetworkPolicies = append(observation.NetworkPolicies, policies.Items...) // they belong to the cache
	}
	if err := r.observeJobs(ctx, r.options.Children, observation, client.MatchingFields{uidIndex: string(s.UID)}); err != nil {
		return nil, err
	}
	if s.Status.Attempt.JobName == "" {
		if observation.Unprotected, err = r.options.AdmissionPolicies.Problem(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.capacity.observe(ctx, observation); err != nil {
		return nil, err
	}
	if err := r.workspaces.observe(ctx, observation); err != nil {
		return nil, err
	}
	return observation, r.observeChildren(ctx, observation)
}

func (r *Reconciler) observeJobs(ctx context.Context, reader client.Reader, observation *agenticsession.Observation, which client.ListOption) error {
	var jobs batchv1.JobList
	if err := reader.List(ctx, &jobs, client.InNamespace(observation.Session.Namespace), which); err != nil {
		return fmt.Errorf("listing owned Jobs: %w", err)
	}
	observation.Jobs = nil
	for i := range jobs.Items {
		if metav1.IsControlledBy(&jobs.Items[i], observation.Session) {
			observation.Jobs = append(observation.Jobs, &jobs.Items[i])
		}
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(observation.Session.Namespace), which); err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	observation.Pods, observation.DeletedPod = r.deletedPods.withDeletedPod(pods.Items, observation.Session)
	return nil
}

// observeChildren reads the activity that the Lease of the session shows and, if an attempt is open, which of its objects exist.
func (r *Reconciler) observeChildren(ctx context.Context, observation *agenticsession.Observation) error {
	s := observation.Session
	lease, err := kube.GetIfExists(ctx, r.options.Children, s.Namespace, agenticsession.LeaseName(s.Name), &coordinationv1.Lease{})
	if err != nil {
		return err
	}
	hasLease := lease != nil && metav1.IsControlledBy(lease, s)
	if hasLease {
		r.renewals.setRemainingCost(observation)
		last := r.renewals.newest(lease)
		observation.Activity = &agenticsession.Activity{
			RenewTime: last.renewTime, ObservedTime: last.observedTime, CreationTime: lease.CreationTimestamp.Time,
			FinishedJob: lease.Annotations[agenticsession.AnnotationRunFinished], Cost: last.cost,
		}
	}
	if s.Status.Attempt.JobName == "" {
		return nil
	}
	observation.Children = map[agenticsession.ChildKey]bool{{Kind: "Lease", Name: agenticsession.LeaseName(s.Name)}: hasLease}
	for _, kind := range restoredKinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind)
		if err := r.options.Children.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{uidIndex: string(s.UID)}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], s) && list.Items[i].DeletionTimestamp.IsZero() {
				observation.Children[agenticsession.ChildKey{Kind: kind.Kind, Name: list.Items[i].Name}] = true
			}
		}
	}
	return nil
}

// Answer implements kube.Kind.
func (r *Reconciler) Answer(ctx context.Context, observation *agenticsession.Observation, decision *agenticsession.Decision) (bool, error) {
	question, answers, namespace := decision.Question, &observation.Answers, observation.Session.Namespace
	if question == nil {
		return false, nil
	}
	var err error
	switch {
	case question.OpenSessions:
		err = r.capacity.verify(ctx, observation)
	case question.Claim != "":
		answers.Claims[question.Claim], err = kube.ReadMetadata(ctx, r.Live, claimKind, namespace, question.Claim)
	case question.Mounts != "":
		answers.Mounts[question.Mounts], err = r.workspaces.listMountingPods(ctx, namespace, question.Mounts)
	case question.Secret != "":
		secret, readError := kube.ReadMetadata(ctx, r.Live, corev1.SchemeGroupVersion.WithKind("Secret"), namespace, question.Secret)
		answers.Secrets[question.Secret], err = secret != nil, readError
	case question.AllJobs:
		err = r.observeJobs(ctx, r.Live, observation, client.MatchingLabels{agenticsession.LabelSessionUID: string(observation.Session.UID)})
		answers.Listed = err == nil
	default:
		job, readError := kube.GetIfExists(ctx, r.Live, namespace, question.JobName, &batchv1.Job{})
		if job != nil && !metav1.IsControlledBy(job, observation.Session) {
			job = nil // creating the session's Job reports a name conflict
		}
		answers.Jobs[question.JobName], err = job, readError
	}
	return true, err
}
