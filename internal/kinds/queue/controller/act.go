package controller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
)

// Act implements kube.Kind. It removes the finalizer or a processed request, and waits for the next message of an idle queue.
func (r *Reconciler) Act(ctx context.Context, q *v1alpha1.Queue, o *queue.Observation, d *queue.Decision) (bool, error) {
	conn, name := r.connOf(o), queue.BrokerQueueName(q, o.ClusterID)
	if d.RemoveFinalizer {
		if err := r.writeCache.SetFinalizer(ctx, r.Client, q, v1alpha1.QueueFinalizer, false); err != nil {
			return false, err
		}
		conn.ForgetQueue(name)
	}
	if d.RemoveDeadLetterRequest {
		// A request whose annotation stays is processed again.
		err := r.writeCache.PatchMetadata(ctx, r.Client, q, func(object client.Object) { delete(object.GetAnnotations(), queue.AnnotationDeadLetters) })
		if err != nil {
			return false, fmt.Errorf("removing the annotation %s: %w", queue.AnnotationDeadLetters, err)
		}
	}
	if d.CompletionEvent != nil {
		r.emit(q, *d.CompletionEvent)
	}
	if d.AwaitMessage {
		conn.NotifyWhenReady(name) //nolint:contextcheck // it outlives the reconciliation
	}
	return false, nil
}
