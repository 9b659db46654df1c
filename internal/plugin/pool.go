package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newPoolCommand is `kubectl yardmaster pool`, the parent of commands for WorkerPools.
func newPoolCommand(env *environment) *cobra.Command {
	return newParentCommand("pool", []string{"pools", "workerpool", "wp"}, "Inspect WorkerPools, and drain or restart their workers",
		newListCommand(env, workerPoolKind, "List WorkerPools with their workers and backlog"),
		newWatchCommand(env, workerPoolKind, "Watch the backlog and workers of WorkerPools",
			"Watch the backlog and workers of a WorkerPool until interrupted. Without a NAME, watch all WorkerPools in the namespace.\n\n"+watchOutputHelp,
			func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
				return env.watchSinglePool(ctx, cluster, wp, nil)
			},
			func(showNamespaces bool) watchView[*v1alpha1.WorkerPool] {
				view := newPoolListView(env)
				view.showNamespaces = showNamespaces
				return view
			}),
		newPoolWorkersCommand(env), newDrainPoolCommand(env), newRestartPoolCommand(env), newPauseScalingCommand(env), newResumeScalingCommand(env),
		workerPoolKind.newObjectCommand(env, "explain", "Explain the number of workers of a WorkerPool",
			"Explain the number of workers of a WorkerPool: the last scaling decision, its inputs, and the result of "+
				"each term of the scaling formula.",
			func(_ context.Context, _ *clusterConnection, wp *v1alpha1.WorkerPool) error {
				return terminal.WriteLines(env.out, render.PoolExplanation(env.outputStyle(), wp, env.now()))
			}))
}

// watchSinglePool watches one WorkerPool until the condition is met. With a nil condition it
// watches until interrupted.
func (e *environment) watchSinglePool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, until func(*v1alpha1.WorkerPool) bool) error {
	view := newPoolListView(e)
	view.singlePool, view.until = wp, until
	return watchObjects(ctx, e, cluster, view, workerPoolKind, selectSingleObject(wp)...)
}

// backlogHistoryLength is the number of samples in a sparkline.
const backlogHistoryLength = 24

// poolListView shows the backlogs and workers of WorkerPools.
type poolListView struct {
	*environment

	showNamespaces bool
	loads          map[client.ObjectKey]*render.PoolLoad
	// singlePool is set if the view is about one pool, and until is the condition that ends
	// the watch. A nil until never ends it.
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
	var (
		troubled, others []*render.PoolLoad
		problems         []string
	)
	for _, load := range slices.SortedFunc(maps.Values(v.loads), func(a, b *render.PoolLoad) int { return compareNames(a.Pool, b.Pool) }) {
		found := render.PoolProblems(load.Pool)
		for _, problem := range found {
			problems = append(problems, v.outputStyle().Colorize(terminal.Yellow, load.Pool.Name+" "+problem.String()))
		}
		if len(found) > 0 {
			troubled = append(troubled, load)
		} else {
			others = append(others, load)
		}
	}
	loads := slices.Concat(troubled, others)
	return append(problems, render.PoolLoadTable(v.outputStyle(), loads).LinesWithin(columns, v.showNamespaces)...)
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
