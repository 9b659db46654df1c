package v1alpha1

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// SetupQueue adds the webhook for Queues to the manager.
func SetupQueue(mgr ctrl.Manager) error {
	return queueValidator.setup(mgr, &v1alpha1.Queue{})
}

var queueValidator = &specValidator[*v1alpha1.Queue]{
	kind:       "Queue",
	specOf:     func(q *v1alpha1.Queue) any { return q.Spec },
	validate:   queue.Validate,
	warn:       queueWarnings,
	warnChange: func(before, after *v1alpha1.Queue) admission.Warnings { return queue.UpdateWarnings(before, after) },
}

// queueWarnings warns of the settings that the engine does not enforce. What NATS enforces
// depends on the server and on the existing stream, and is reported in status.enforcement.
func queueWarnings(_ context.Context, q *v1alpha1.Queue) admission.Warnings {
	warnings := queue.Warnings(q)
	if q.Spec.Broker != nil && q.Spec.Broker.Engine == v1alpha1.EngineAsynq {
		warnings = append(warnings, queue.UnenforcedFieldWarnings(q, (*asynq.Engine)(nil).Capabilities())...)
	}
	return warnings
}
