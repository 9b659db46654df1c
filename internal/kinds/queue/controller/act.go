package controller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// act executes what follows the stored status: it removes the finalizer or a processed request,
// and waits for the next message of an idle queue.
func (r *Reconciler) act(ctx context.Context, q *v1alpha1.Queue, o *queue.Observation, d *queue.Decision) error {
	conn, name := r.connOf(o), queue.BrokerQueueName(q, o.ClusterID)
	if d.RemoveFinalizer {
		err := r.patchMetadata(ctx, q, "removing the finalizer", func(object client.Object) {
			controllerutil.RemoveFinalizer(object, v1alpha1.QueueFinalizer)
		})
		if err != nil {
			return err
		}
		conn.ForgetQueue(name)
	}
	if d.RemoveDeadLetterRequest {
		// A request that stays is processed again.
		err := r.patchMetadata(ctx, q, "removing the annotation "+queue.AnnotationDeadLetters, func(object client.Object) {
			delete(object.GetAnnotations(), queue.AnnotationDeadLetters)
		})
		if err != nil {
			return err
		}
	}
	if d.CompletionEvent != nil {
		r.emit(q, *d.CompletionEvent)
	}
	if d.AwaitMessage {
		conn.NotifyWhenReady(name) //nolint:contextcheck // it outlives the reconciliation
	}
	return nil
}

// patchMetadata stores a change of the metadata of a Queue.
func (r *Reconciler) patchMetadata(ctx context.Context, q *v1alpha1.Queue, doing string, change func(client.Object)) error {
	if err := kube.PatchMetadata(ctx, r.Client, q, change); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if q.DeletionTimestamp.IsZero() {
		r.writeCache.Record(q)
	}
	return nil
}
