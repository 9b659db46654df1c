package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// objectView shows one object, until it has ended.
type objectView[T client.Object] struct {
	*environment

	kind *watchableKind[T]
	// latest is how it stood when it was last seen, told whether that is known already.
	latest        T
	latestPrinted bool
	// exists says that it has been seen, and not been seen to go, since the watch began.
	exists bool
}

func (v *objectView[T]) applyUpdate(sight follow.ObjectUpdate[T]) []string {
	same := sight.Object.GetUID() == v.latest.GetUID() // not another that has got the name since
	v.exists = same && !sight.Deleted
	// A list may be served from before what was last seen. A status says nothing about
	// that; the generation tells whether what this watch is about has been asked for yet.
	if !same || sight.Object.GetGeneration() < v.latest.GetGeneration() {
		return nil
	}
	var before T
	if v.latestPrinted {
		before = v.latest
	}
	v.latest, v.latestPrinted = sight.Object, true
	return v.kind.describeChanges(before, sight.Object)
}

func (v *objectView[T]) renderLines() []string {
	return v.kind.renderDetail(v.outputStyle(), v.latest, v.now())
}

func (v *objectView[T]) isFinished() (bool, error) {
	switch {
	case v.kind.isFinished(v.latest):
		return true, v.kind.checkSucceeded(v.latest)
	case !v.exists:
		return true, fmt.Errorf("%s was deleted", v.kind.qualifiedName(v.latest))
	default:
		return false, nil
	}
}

// listView shows objects as rows.
type listView[T client.Object] struct {
	*environment

	kind           *watchableKind[T]
	showNamespaces bool
	endless        bool
	objects        map[client.ObjectKey]T
	// anyFailed is set when one failed that may be gone by now, or went before it ended.
	anyFailed, anySeen bool
}

func newListView[T client.Object](e *environment, kind *watchableKind[T]) *listView[T] {
	return &listView[T]{environment: e, kind: kind, objects: map[client.ObjectKey]T{}}
}

func (v *listView[T]) applyUpdate(sight follow.ObjectUpdate[T]) []string {
	key := client.ObjectKeyFromObject(sight.Object)
	name := key.Name
	if v.showNamespaces {
		name = key.String()
	}
	var lines []string
	for _, change := range v.kind.describeChanges(v.objects[key], sight.Object) {
		lines = append(lines, name+" "+change)
	}
	v.anySeen = true
	if !sight.Deleted {
		v.objects[key] = sight.Object
		return lines
	}
	delete(v.objects, key)
	v.anyFailed = v.anyFailed || !v.kind.isFinished(sight.Object) || v.kind.checkSucceeded(sight.Object) != nil
	return append(lines, name+" was deleted")
}

func (v *listView[T]) renderLines() []string {
	objects := make([]T, 0, len(v.objects))
	for _, object := range v.objects {
		objects = append(objects, object)
	}
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	rows := v.kind.rows
	if v.showNamespaces {
		rows = v.kind.rowsOfNamespaces
	}
	return append(rows(v.outputStyle(), objects, v.now()), v.kind.renderLegend(v.outputStyle())...)
}

func (v *listView[T]) isFinished() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.anySeen {
		return true, fmt.Errorf("there is no %s to wait for", v.kind.kindName)
	}
	failed := v.anyFailed
	for _, object := range v.objects {
		if !v.kind.isFinished(object) {
			return false, nil
		}
		failed = failed || v.kind.checkSucceeded(object) != nil
	}
	if failed {
		return true, errUnsuccessful
	}
	return true, nil
}
