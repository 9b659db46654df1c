package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newPoolCommand(env *environment) *cobra.Command {
	return newParentCommand("pool", []string{"pools", "workerpool", "wp"}, "Inspect WorkerPools, and drain or restart their workers",
		newListCommand(env, workerPoolKind, "List WorkerPools with their workers and backlog"),
		newWatchCommand(env, workerPoolKind, "Watch the backlog and workers of WorkerPools",
			"Watch the backlog and workers of a WorkerPool until interrupted. Without a NAME, watch all WorkerPools in the namespace.\n\n"+
				watchOutputHelp,
			func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
				return env.watchSinglePool(ctx, cluster, wp, nil)
			},
			func(showNamespaces bool) watchView[*v1alpha1.WorkerPool] {
				view := newPoolListView(env)
				view.showNamespaces = showNamespaces
				return view
			}),
		newPoolWorkersCommand(env), newDrainPoolCommand(env), newRestartPoolCommand(env), newSuspendScalingCommand(env),
		newChangeCommand(env, specChange[*v1alpha1.WorkerPool]{
			kind: workerPoolKind, verb: "resume-scaling", short: "Resume the autoscaling of WorkerPools",
			long: "Resume the autoscaling of WorkerPools, by setting spec.autoscaling.suspend to false.",
			changeSpec: func(wp *v1alpha1.WorkerPool) {
				if wp.Spec.Autoscaling != nil {
					wp.Spec.Autoscaling.Suspend = false
				}
			},
			changedMessage: "scales again", unchangedMessage: "is not suspended",
		}),
		workerPoolKind.newObjectCommand(env, "explain", "Explain the number of workers of a WorkerPool",
			"Explain the number of workers of a WorkerPool: the last scaling decision, its inputs, and the result of "+
				"each term of the scaling formula.",
			func(_ context.Context, _ *clusterConnection, wp *v1alpha1.WorkerPool) error {
				return terminal.WriteLines(env.out, render.PoolExplanation(env.outputStyle(), wp, env.now()))
			}))
}

// watchSinglePool watches one WorkerPool until the condition is met; with a nil condition, until interrupted.
func (e *environment) watchSinglePool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, until func(*v1alpha1.WorkerPool) bool) error {
	view := newPoolListView(e)
	view.singlePool, view.until = wp, until
	return watchObjects(ctx, e, cluster, view, workerPoolKind, selectSingleObject(wp)...)
}

// backlogHistoryLength is the number of samples in a sparkline.
const backlogHistoryLength = 24

type poolListView struct {
	*environment

	showNamespaces bool
	loads          map[client.ObjectKey]*render.PoolLoad
	// singlePool is set if the view is about one pool, and until is the condition that ends the watch; a nil until never ends it.
	singlePool *v1alpha1.WorkerPool
	until      func(*v1alpha1.WorkerPool) bool
}

func newPoolListView(e *environment) *poolListView {
	return &poolListView{environment: e, loads: map[client.ObjectKey]*render.PoolLoad{}}
}

func (v *poolListView) applyUpdate(update follow.ObjectUpdate[*v1alpha1.WorkerPool]) []render.Change {
	wp, key := update.Object, client.ObjectKeyFromObject(update.Object)
	if v.singlePool != nil && wp.UID != v.singlePool.UID {
		return nil // a new object with the same name
	}
	name := displayName(key, v.showNamespaces)
	if update.Deleted {
		delete(v.loads, key)
		return []render.Change{{Text: name + " was deleted"}}
	}
	load, known := v.loads[key]
	if !known {
		load = &render.PoolLoad{}
		v.loads[key] = load
	}
	changes := prefixChanges(name, render.PoolChanges(load.Pool, wp))
	load.Pool = wp
	if wp.Status.Backlog != nil {
		load.Backlogs = append(load.Backlogs, *wp.Status.Backlog)
		load.Backlogs = load.Backlogs[max(0, len(load.Backlogs)-backlogHistoryLength):]
	}
	return changes
}

func (v *poolListView) renderLines(columns int) []string {
	hasProblems := func(load *render.PoolLoad) bool { return len(render.PoolProblems(load.Pool)) > 0 }
	loads := slices.SortedFunc(maps.Values(v.loads), func(a, b *render.PoolLoad) int {
		return cmp.Or(decision.CompareTrueFirst(hasProblems(a), hasProblems(b)), compareNames(a.Pool, b.Pool))
	})
	var lines []string
	for _, load := range loads {
		for _, problem := range render.PoolProblems(load.Pool) {
			lines = append(lines, v.outputStyle().Colorize(terminal.Yellow, load.Pool.Name+" "+problem.String()))
		}
	}
	return append(lines, render.PoolLoadTable(v.outputStyle(), loads).LinesWithin(columns, v.showNamespaces)...)
}

func (v *poolListView) isFinished() (bool, error) {
	if v.singlePool == nil {
		return false, nil
	}
	load := v.loads[client.ObjectKeyFromObject(v.singlePool)]
	switch {
	case load == nil:
		return true, fmt.Errorf("%s was deleted", workerPoolKind.qualifiedName(v.singlePool))
	case v.until != nil && v.until(load.Pool):
		return true, nil
	default:
		return false, nil
	}
}

// annotationRestartedAt is the annotation of `kubectl rollout restart`: each new value is a new revision.
const annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"

func newRestartPoolCommand(env *environment) *cobra.Command {
	watch := false
	command := workerPoolKind.newObjectCommand(env, "restart", "Replace all workers of a WorkerPool by new ones",
		"Replace all workers of a WorkerPool by new ones, with a rollout of the same version: old workers finish their "+
			"messages in flight, and keep working until new ones have proven to work.\n\n"+
			"The command sets the annotation "+annotationRestartedAt+" of spec.template, as kubectl rollout restart does.",
		func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
			qualifiedName := workerPoolKind.qualifiedName(wp)
			if !wp.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s: cannot restart: it is being deleted", qualifiedName)
			}
			// The decoded object has a spec.template.spec without its required containers, which a patch must not add.
			patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`,
				annotationRestartedAt, env.now().UTC().Format(time.RFC3339))
			if err := cluster.Patch(ctx, wp, client.RawPatch(types.MergePatchType, patch)); err != nil {
				return err
			}
			fmt.Fprintln(env.out, qualifiedName, "restarts: its workers are replaced by new ones")
			if !watch {
				return nil
			}
			return env.watchSinglePool(ctx, cluster, wp, func(now *v1alpha1.WorkerPool) bool {
				progressing := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionProgressing)
				return progressing != nil && progressing.ObservedGeneration >= wp.Generation && progressing.Reason == v1alpha1.ReasonRolledOut
			})
		})
	command.Flags().BoolVarP(&watch, "watch", "w", false, "Watch until the rollout is complete.")
	return command
}

func newSuspendScalingCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.WorkerPool]{
		kind: workerPoolKind, verb: "suspend-scaling", short: "Suspend the autoscaling of WorkerPools",
		long: "Suspend the autoscaling of WorkerPools, by setting spec.autoscaling.suspend: the number of workers stays as it is, and decisions are " +
			"still reported. It has no effect on a WorkerPool that is not autoscaled.",
		changeSpec: func(wp *v1alpha1.WorkerPool) {
			if wp.Spec.Autoscaling != nil {
				wp.Spec.Autoscaling.Suspend = true
			}
		},
		changedMessage: "does not scale", unchangedMessage: "is already suspended, or is not autoscaled",
	})
}
