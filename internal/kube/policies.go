package kube

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/policy"
)

// SelectPolicies returns the Policies that select an object. It ignores a Policy with an invalid
// selector: the Policy's own controller reports it.
func SelectPolicies(ctx context.Context, reader client.Reader, object client.Object) (policy.Selection, error) {
	var list v1alpha1.PolicyList
	if err := reader.List(ctx, &list, client.InNamespace(object.GetNamespace())); err != nil {
		return nil, fmt.Errorf("listing Policies: %w", err)
	}
	selected, err := policy.SelectPolicies(list.Items, object.GetLabels())
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Ignoring Policies with an invalid selector", "error", err.Error())
	}
	return selected, nil
}
