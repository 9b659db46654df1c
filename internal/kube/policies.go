package kube

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// NewPolicyCache returns a cache of the results of ReadPolicies by namespace. Invalidate it whenever a Policy changes.
func NewPolicyCache(reader client.Reader) *NamespaceCache[policy.Set] {
	return NewNamespaceCache(func(ctx context.Context, namespace string) (policy.Set, error) {
		return ReadPolicies(ctx, reader, namespace)
	})
}

// ReadPolicies returns the Policies of a namespace, which belong to the informer's cache and must not be changed. It ignores a
// Policy with an invalid selector: the Policy's own controller reports it.
func ReadPolicies(ctx context.Context, reader client.Reader, namespace string) (policy.Set, error) {
	var list v1alpha1.PolicyList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return policy.Set{}, fmt.Errorf("listing Policies: %w", err)
	}
	set, err := policy.NewSet(list.Items)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Ignoring Policies with an invalid selector", "error", err.Error())
	}
	return set, nil
}
