package queue

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// act executes what follows the stored status: it removes the finalizer or a processed request,
// and waits for the next message of an idle queue.
func (r *Reconciler) act(ctx context.Context, q *v1alpha1.Queue, o *queue.Observation, d *queue.Decision) error {
	conn := r.connOf(o)
	if d.RemoveFinalizer {
		if err := r.removeFinalizer(ctx, q); err != nil {
			return err
		}
		conn.ForgetQueue(queue.BrokerQueueName(q))
	}
	if d.RemoveDeadLetterRequest {
		if err := r.removeDeadLetterRequest(ctx, q); err != nil {
			return err
		}
	}
	if d.CompletionEvent != nil {
		r.emit(q, *d.CompletionEvent)
	}
	if d.AwaitMessage {
		conn.NotifyWhenReady(queue.BrokerQueueName(q)) //nolint:contextcheck // it outlives the reconciliation
	}
	return nil
}

func (r *Reconciler) removeFinalizer(ctx context.Context, q *v1alpha1.Queue) error {
	err := kube.PatchMetadata(ctx, r.client, q, func(object client.Object) {
		controllerutil.RemoveFinalizer(object, v1alpha1.QueueFinalizer)
	})
	if err != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}

// removeDeadLetterRequest keeps a processed request from being processed again.
func (r *Reconciler) removeDeadLetterRequest(ctx context.Context, q *v1alpha1.Queue) error {
	err := kube.PatchMetadata(ctx, r.client, q, func(object client.Object) {
		annotations := object.GetAnnotations()
		delete(annotations, queue.AnnotationDeadLetters)
		object.SetAnnotations(annotations)
	})
	if err != nil {
		return fmt.Errorf("removing the annotation %s: %w", queue.AnnotationDeadLetters, err)
	}
	r.writeCache.Record(q)
	return nil
}
