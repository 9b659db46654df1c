package kube

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/policy"
)

// ListPolicies returns the Policies of a namespace, which must not be changed: they are those of the
// cache. To copy thousands of them in each reconciliation would slow down all other objects.
func ListPolicies(ctx context.Context, reader client.Reader, namespace string) ([]v1alpha1.Policy, error) {
	var list v1alpha1.PolicyList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Policies: %w", err)
	}
	return list.Items, nil
}

// SelectPolicies returns the Policies that select an object. They must not be changed. It ignores a
// Policy with an invalid selector: the Policy's own controller reports it.
func SelectPolicies(ctx context.Context, reader client.Reader, object client.Object) (policy.Selection, error) {
	policies, err := ListPolicies(ctx, reader, object.GetNamespace())
	if err != nil {
		return nil, err
	}
	selected, err := policy.SelectPolicies(policies, object.GetLabels())
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Ignoring Policies with an invalid selector", "error", err.Error())
	}
	return selected, nil
}
