package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// observeAdminAccess reads the operator's key, and derives what the workers of the pool need.
func (r *Reconciler) observeAdminAccess(ctx context.Context, observed *observation) error {
	keys, err := r.keys.Get(ctx)
	if keys == nil || err != nil {
		return err
	}
	observed.adminKeys = keys
	observed.Operator.Admin = &workerpool.AdminAccess{PublicKey: keys.PublicKey(), PreStopKey: keys.PreStopKey(string(observed.Pool.UID))}
	return nil
}

// observeNetworkPolicies reads the NetworkPolicies that may select the pool's workers.
func (r *Reconciler) observeNetworkPolicies(ctx context.Context, observed *observation) error {
	if r.options.OperatorNamespace == "" {
		return nil
	}
	var policies networkingv1.NetworkPolicyList
	// A namespace may have one for each of thousands of sessions. They are only read.
	if err := r.Client.List(ctx, &policies, client.InNamespace(observed.Pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NetworkPolicies: %w", err)
	}
	observed.NetworkPolicies = policies.Items
	return nil
}

// signRequest returns a token for a request to a worker; empty if the operator has no key.
func (r *Reconciler) signRequest(keys *adminauth.Keys, worker *corev1.Pod, action string) (string, error) {
	if keys == nil {
		return "", nil
	}
	return keys.Sign(adminauth.Request{Worker: worker.Namespace + "/" + worker.Name, Action: action}, r.Clock.Now())
}
