package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// protectionRefusalInterval is the time after which protections are written again if the API server
// refused one.
const protectionRefusalInterval = time.Minute

// writeProtections writes protections on Pods. An admission policy may refuse the annotations of other
// projects: that must delay nothing else, so it is only logged.
func (r *Reconciler) writeProtections(ctx context.Context, wp *v1alpha1.WorkerPool, observed *observation, changes []workerpool.ProtectionChange) error {
	if memory, _ := r.memory.Get(wp); observed.Now.Before(memory.protectionRetry) {
		return nil
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentPatches)
	for _, change := range changes {
		group.Go(func() error { return r.writeProtection(ctx, observed.pods[change.Worker], change) })
	}
	err := group.Wait()
	refusal := decision.AsRefusal(err, decision.Refusal{Kind: "Pod"})
	if refusal == nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("The API server refused the annotations that protect busy Pods from the removal of their node", "error", err.Error())
	r.memory.Update(wp, func(memory *poolMemory) { memory.protectionRetry = observed.Now.Add(protectionRefusalInterval) })
	return nil
}

func (r *Reconciler) writeProtection(ctx context.Context, before *corev1.Pod, change workerpool.ProtectionChange) error {
	after := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationProtection, change.Time.UTC().Format(time.RFC3339Nano))
	if change.Active {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationSafeToEvict, "false")
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, workerpool.AnnotationDoNotDisrupt, "true")
	} else {
		delete(after.Annotations, workerpool.AnnotationSafeToEvict)
		delete(after.Annotations, workerpool.AnnotationDoNotDisrupt)
	}
	err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the protection of Pod %s: %w", before.Name, err)
	}
	return nil
}
