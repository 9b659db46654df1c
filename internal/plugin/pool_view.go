package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// backlogHistoryLength is how many backlogs a spark line shows.
const backlogHistoryLength = 24

// poolListView shows the backlogs of WorkerPools against their workers.
type poolListView struct {
	*environment

	showNamespaces bool
	loads          map[client.ObjectKey]*render.PoolLoad
	// singlePool is the one pool that it is about, and until reports whether that is where it
	// was to come to; nil: it is watched for ever.
	singlePool *v1alpha1.WorkerPool
	until      func(*v1alpha1.WorkerPool) bool
}

func newPoolListView(e *environment) *poolListView {
	return &poolListView{environment: e, loads: map[client.ObjectKey]*render.PoolLoad{}}
}

func (v *poolListView) applyUpdate(sight follow.ObjectUpdate[*v1alpha1.WorkerPool]) []string {
	wp, key := sight.Object, client.ObjectKeyFromObject(sight.Object)
	if v.singlePool != nil && wp.UID != v.singlePool.UID {
		return nil // another that has got the name since
	}
	name := key.Name
	if v.showNamespaces {
		name = key.String()
	}
	if sight.Deleted {
		delete(v.loads, key)
		return []string{name + " was deleted"}
	}
	load, known := v.loads[key]
	if !known {
		load = &render.PoolLoad{}
		v.loads[key] = load
	}
	var lines []string
	for _, change := range render.PoolChanges(load.Pool, wp) {
		lines = append(lines, name+" "+change)
	}
	load.Pool = wp
	if wp.Status.Backlog != nil {
		load.Backlogs = append(load.Backlogs, *wp.Status.Backlog)
		load.Backlogs = load.Backlogs[max(0, len(load.Backlogs)-backlogHistoryLength):]
	}
	return lines
}

func (v *poolListView) renderLines() []string {
	var loads []render.PoolLoad
	for _, load := range v.loads {
		loads = append(loads, *load)
	}
	slices.SortFunc(loads, func(a, b render.PoolLoad) int {
		return cmp.Or(cmp.Compare(a.Pool.Namespace, b.Pool.Namespace), cmp.Compare(a.Pool.Name, b.Pool.Name))
	})
	show := render.Loads
	if v.showNamespaces {
		show = render.LoadsOfNamespaces
	}
	lines := show(v.outputStyle(), loads)
	for i := range loads {
		for _, trouble := range render.PoolProblems(loads[i].Pool) {
			lines = append(lines, v.outputStyle().Colorize(terminal.Yellow, loads[i].Pool.Name+" "+trouble.String()))
		}
	}
	return lines
}

func (v *poolListView) isFinished() (bool, error) {
	if v.singlePool == nil {
		return false, nil
	}
	load := v.loads[client.ObjectKeyFromObject(v.singlePool)]
	switch {
	case load == nil:
		return true, fmt.Errorf("%s was deleted", workerPoolKind().qualifiedName(v.singlePool))
	case v.until != nil && v.until(load.Pool):
		return true, nil
	default:
		return false, nil
	}
}
