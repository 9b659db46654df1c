package queue

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/policy"
)

// effective is what holds for a Queue, with the Policies of its namespace.
func (r *Reconciler) effective(ctx context.Context, q *v1alpha1.Queue) (*v1alpha1.QueueEffective, error) {
	var policies v1alpha1.PolicyList
	if err := r.client.List(ctx, &policies, client.InNamespace(q.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Policies: %w", err)
	}
	selected, err := policy.SelectPolicies(policies.Items, q.Labels)
	if err != nil {
		// The webhook refuses such a Policy. The others hold nevertheless.
		ctrl.LoggerFrom(ctx).Error(err, "Leaving out Policies that cannot be read")
	}
	return policy.EffectiveQueue(q, selected), nil
}
