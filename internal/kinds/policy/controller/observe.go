package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

func (r *Reconciler) observe(ctx context.Context, p *v1alpha1.Policy) (policy.Observation, error) {
	observation := policy.Observation{Policy: p.DeepCopy(), Now: r.Clock.Now()}
	var err error
	observation.Objects, err = r.objects.Get(ctx, p.Namespace)
	if err != nil || p.Spec.Defaults == nil || p.Spec.Defaults.Broker == nil {
		return observation, err
	}
	observation.BrokerProblem, err = r.findBrokerProblem(ctx, p.Namespace, p.Spec.Defaults.Broker)
	return observation, err
}

// readObjects reads the objects of a namespace that Policies can select.
func (r *Reconciler) readObjects(ctx context.Context, namespace string) (policy.SelectableObjects, error) {
	var queues v1alpha1.QueueList
	if err := r.Client.List(ctx, &queues, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return policy.SelectableObjects{}, fmt.Errorf("listing Queues: %w", err)
	}
	var pools v1alpha1.WorkerPoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return policy.SelectableObjects{}, fmt.Errorf("listing WorkerPools: %w", err)
	}
	return policy.NewSelectableObjects(queues.Items, pools.Items), nil
}

// findBrokerProblem returns the problem with the Secrets of a default broker; nil without a problem.
func (r *Reconciler) findBrokerProblem(ctx context.Context, namespace string, b *v1alpha1.Broker) (*decision.Problem, error) {
	key := brokeraccess.KeyOf(namespace, b)
	if known, found := r.brokerProblems.Get(key); found {
		problem, _ := known.(*decision.Problem)
		return problem, nil
	}
	_, err := brokeraccess.ReadCredentials(ctx, r.Live, key)
	var problem *decision.Problem
	if invalid := (*brokeraccess.ConnectionError)(nil); errors.As(err, &invalid) {
		problem = &decision.Problem{Reason: invalid.Reason, Message: "spec.defaults.broker: " + invalid.Error()}
	} else if err != nil {
		return nil, err
	}
	// The entry expires before the next requeued reconciliation, which then reads the Secrets.
	r.brokerProblems.Add(key, problem, policy.SecretInterval(problem)-time.Second)
	return problem, nil
}
