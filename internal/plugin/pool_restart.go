package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// annotationRestartedAt is the annotation of `kubectl rollout restart`: each new value is a new revision.
const annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"

// restartPoolCommand is `kubectl yardmaster pool restart`.
type restartPoolCommand struct {
	*environment

	watch bool
}

func newRestartPoolCommand(env *environment) *cobra.Command {
	r := &restartPoolCommand{environment: env}
	command := workerPoolKind.newObjectCommand(env, "restart", "Replace all workers of a WorkerPool by new ones",
		"Replace all workers of a WorkerPool by new ones, with a rollout of the same version: old workers finish their "+
			"messages in flight, and keep working until new ones have proven to work.\n\n"+
			"The command sets the annotation "+annotationRestartedAt+" of spec.template, as kubectl rollout restart does.",
		r.restartPool)
	command.Flags().BoolVarP(&r.watch, "watch", "w", false, "Watch until the rollout is complete.")
	return command
}

func (r *restartPoolCommand) restartPool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
	qualifiedName := workerPoolKind.qualifiedName(wp)
	if !wp.DeletionTimestamp.IsZero() {
		return fmt.Errorf("%s: cannot restart: it is being deleted", qualifiedName)
	}
	// Without spec.template.spec, which a patch of the decoded object would add without its required containers.
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, annotationRestartedAt, r.now().UTC().Format(time.RFC3339))
	if err := cluster.Patch(ctx, wp, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	fmt.Fprintln(r.out, qualifiedName, "restarts: its workers are replaced by new ones")
	if !r.watch {
		return nil
	}
	return r.watchSinglePool(ctx, cluster, wp, func(now *v1alpha1.WorkerPool) bool {
		progressing := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionProgressing)
		return progressing != nil && progressing.ObservedGeneration >= wp.Generation && progressing.Reason == v1alpha1.ReasonRolledOut
	})
}
