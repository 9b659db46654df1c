package validation

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// PolicyValidator validates Policies.
var PolicyValidator = &specValidator[*v1alpha1.Policy]{
	kind:    "Policy",
	webhook: "policies.yardmaster.dev",
	specOf:  func(p *v1alpha1.Policy) any { return p.Spec },
	validate: func(p *v1alpha1.Policy) field.ErrorList {
		if decision.IsTooLarge(p, p.Spec) {
			return field.ErrorList{field.Forbidden(field.NewPath("spec"), decision.TooLargeMessage)}
		}
		if _, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "selector"), field.OmitValueType{}, err.Error())}
		}
		return nil
	},
}

// QueueValidator validates Queues.
var QueueValidator = &specValidator[*v1alpha1.Queue]{
	kind:     "Queue",
	webhook:  "queues.yardmaster.dev",
	specOf:   func(q *v1alpha1.Queue) any { return q.Spec },
	validate: queue.Validate,
	// What NATS enforces depends on the server and on the existing stream, and is reported in the condition ConfigSynced.
	warn: func(_ context.Context, q *v1alpha1.Queue) admission.Warnings {
		warnings := queue.Warnings(q)
		if q.Spec.Broker != nil && q.Spec.Broker.Engine == v1alpha1.EngineAsynq {
			warnings = append(warnings, queue.UnenforcedFieldWarnings(q, (*asynq.Engine)(nil).Capabilities())...)
		}
		return warnings
	},
	warnChange: func(before, after *v1alpha1.Queue) admission.Warnings { return queue.UpdateWarnings(before, after) },
}

// WorkerPoolValidator validates WorkerPools.
var WorkerPoolValidator = &specValidator[*v1alpha1.WorkerPool]{
	kind:     "WorkerPool",
	webhook:  "workerpools.yardmaster.dev",
	specOf:   func(wp *v1alpha1.WorkerPool) any { return wp.Spec },
	validate: workerpool.ValidateSpec,
	warn:     workerPoolWarnings,
}

func workerPoolWarnings(_ context.Context, wp *v1alpha1.WorkerPool) admission.Warnings {
	var warnings admission.Warnings
	if wp.Spec.Drain != nil && wp.Spec.Drain.Mode == v1alpha1.DrainSignal {
		warnings = append(warnings, "spec.drain.mode: with Signal the operator does not know which workers are idle, and may drain busy workers first")
	}
	if d := wp.Spec.Drain; d != nil && d.TerminationGrace != nil && d.Timeout != nil && d.Mode != v1alpha1.DrainSignal && d.OnTimeout != v1alpha1.DrainRequeue &&
		d.TerminationGrace.Duration.Duration < d.Timeout.Duration.Duration {
		warnings = append(warnings, "spec.drain.terminationGrace: less than timeout, so evicted workers have less time for their messages than drained ones")
	}
	if a := wp.Spec.Autoscaling; a != nil && a.Suspend {
		warnings = append(warnings, "spec.autoscaling.suspend: decisions are reported in status.lastDecision and not carried out")
	}
	return warnings
}
