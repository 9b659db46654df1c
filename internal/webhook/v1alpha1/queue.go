package v1alpha1

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// SetupQueue adds the webhook for Queues to the manager.
func SetupQueue(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1alpha1.Queue{}).WithValidator(queueValidator{}).Complete()
}

// queueValidator asks package queue what is wrong with a Queue.
type queueValidator struct{}

var _ admission.Validator[*v1alpha1.Queue] = queueValidator{}

// warnings are of the spec, and of what its engine cannot do. NATS can do all that does
// not depend on the server, or on how the queue was made: status.enforcement tells.
func (queueValidator) warnings(q *v1alpha1.Queue) admission.Warnings {
	all := queue.Warnings(q)
	if q.Spec.Broker != nil && q.Spec.Broker.Engine == v1alpha1.EngineAsynq {
		all = append(all, "spec.broker.engine: "+asynq.ExperimentalWarning)
		all = append(all, queue.UnenforcedFieldWarnings(q, (*asynq.Engine)(nil).Capabilities())...)
	}
	return all
}

// ValidateCreate refuses a spec that no broker could carry out.
func (v queueValidator) ValidateCreate(_ context.Context, q *v1alpha1.Queue) (admission.Warnings, error) {
	return v.warnings(q), refused("Queue", q.Name, queue.Validate(q))
}

// ValidateUpdate does the same. Where the spec stays, it was taken once and must not bar a
// change of something else.
func (v queueValidator) ValidateUpdate(_ context.Context, before, after *v1alpha1.Queue) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	return append(v.warnings(after), queue.UpdateWarnings(before, after)...), refused("Queue", after.Name, queue.Validate(after))
}

// ValidateDelete is never asked.
func (queueValidator) ValidateDelete(context.Context, *v1alpha1.Queue) (admission.Warnings, error) {
	return nil, nil
}
