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

// remembered is how many backlogs a spark line shows.
const remembered = 24

// poolsView shows the backlogs of WorkerPools against their workers.
type poolsView struct {
	*environment

	namespaces bool
	seen       map[client.ObjectKey]*render.Load
	// alone is the one pool that it is about, and until reports whether that is where it
	// was to come to; nil: it is watched for ever.
	alone *v1alpha1.WorkerPool
	until func(*v1alpha1.WorkerPool) bool
}

func newPoolsView(e *environment) *poolsView {
	return &poolsView{environment: e, seen: map[client.ObjectKey]*render.Load{}}
}

func (v *poolsView) see(sight follow.Sight[*v1alpha1.WorkerPool]) []string {
	wp, key := sight.Object, client.ObjectKeyFromObject(sight.Object)
	if v.alone != nil && wp.UID != v.alone.UID {
		return nil // another that has got the name since
	}
	name := key.Name
	if v.namespaces {
		name = key.String()
	}
	if sight.Gone {
		delete(v.seen, key)
		return []string{name + " was deleted"}
	}
	load, known := v.seen[key]
	if !known {
		load = &render.Load{}
		v.seen[key] = load
	}
	var lines []string
	for _, change := range render.PoolChanges(load.Pool, wp) {
		lines = append(lines, name+" "+change)
	}
	load.Pool = wp
	if wp.Status.Backlog != nil {
		load.Backlogs = append(load.Backlogs, *wp.Status.Backlog)
		load.Backlogs = load.Backlogs[max(0, len(load.Backlogs)-remembered):]
	}
	return lines
}

func (v *poolsView) lines() []string {
	var loads []render.Load
	for _, load := range v.seen {
		loads = append(loads, *load)
	}
	slices.SortFunc(loads, func(a, b render.Load) int {
		return cmp.Or(cmp.Compare(a.Pool.Namespace, b.Pool.Namespace), cmp.Compare(a.Pool.Name, b.Pool.Name))
	})
	show := render.Loads
	if v.namespaces {
		show = render.LoadsOfNamespaces
	}
	lines := show(v.style(), loads)
	for i := range loads {
		for _, trouble := range render.Troubles(loads[i].Pool) {
			lines = append(lines, v.style().Paint(terminal.Yellow, loads[i].Pool.Name+" "+trouble.String()))
		}
	}
	return lines
}

func (v *poolsView) over() (bool, error) {
	if v.alone == nil {
		return false, nil
	}
	load := v.seen[client.ObjectKeyFromObject(v.alone)]
	switch {
	case load == nil:
		return true, fmt.Errorf("%s was deleted", poolKind().called(v.alone))
	case v.until != nil && v.until(load.Pool):
		return true, nil
	default:
		return false, nil
	}
}
