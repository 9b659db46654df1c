package controller

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// maxRecordDuration bounds the attempts to record the result of a scan.
const maxRecordDuration = 30 * time.Second

// recordRetryInterval is the wait after a failed attempt.
const recordRetryInterval = time.Second

// roleBindingName is the RoleBinding that lets the operator scan a namespace. It owns the namespace's report: an installation that
// no longer scans the namespace removes the RoleBinding, and the garbage collector then removes the report, which nobody would
// update. A report in an installation without this RoleBinding has no owner.
const roleBindingName = "yardmaster-jobreport"

var roleBindingKind = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")

// record stores the decision's status, if a write is due, and emits its events. It creates a missing report first. On success
// observation.Report is the stored report.
func (r *Reconciler) record(ctx context.Context, observation *jobreport.Observation, decision *jobreport.Decision) error {
	before := observation.Report
	missing := before.ResourceVersion == ""
	if decision.Write == jobreport.WriteUnchanged && !missing {
		return nil
	}
	if missing {
		binding, err := kube.ReadMetadata(ctx, r.live, roleBindingKind, before.Namespace, roleBindingName)
		if err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("reading the RoleBinding %s: %w", roleBindingName, err)
		}
		if binding != nil {
			before.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: roleBindingKind.Kind, Name: binding.Name, UID: binding.UID,
			}}
		}
		if err := r.client.Create(ctx, before); err != nil {
			before.ResourceVersion = ""
			return fmt.Errorf("creating the JobReport: %w", err)
		}
	}
	after := before.DeepCopy()
	after.Status = decision.Status
	if err := kube.UpdateStatus(ctx, r.client, before, after); err != nil {
		return fmt.Errorf("updating the status of the JobReport: %w", err)
	}
	observation.Report = after
	for _, event := range decision.Events {
		kube.EmitEvent(r.recorder, after, event)
	}
	return nil
}

// retryWhileUnavailable repeats the attempt while it can still succeed. The cause is the error of the scan: if the API server
// was unavailable, a missing permission is retried too, because a starting API server denies requests until it has read all
// Roles.
func (r *Reconciler) retryWhileUnavailable(ctx context.Context, cause error, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxRecordDuration)
	defer cancel()
	wasUnavailable := cause != nil && !isAPIStatus(cause)
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		wasUnavailable = wasUnavailable || !isAPIStatus(err)
		// The API server is overloaded or does not answer, or the report changed: the problem is probably over soon.
		isRetriable := !isAPIStatus(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
		if !isRetriable && (!wasUnavailable || !isForbidden(err)) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-r.clock.After(recordRetryInterval):
		}
	}
}
