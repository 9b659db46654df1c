package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// objectView shows one object until it finishes.
type objectView[T client.Object] struct {
	*environment

	kind *watchableKind[T]
	// latest is the latest known state, and latestPrinted whether the user has seen it.
	latest        T
	latestPrinted bool
	// exists is whether the watch has seen the object and not seen its deletion.
	exists bool
}

func (v *objectView[T]) applyUpdate(update follow.ObjectUpdate[T]) []render.Change {
	sameObject := update.Object.GetUID() == v.latest.GetUID() // not a new object with the same name
	v.exists = sameObject && !update.Deleted
	// The API server may serve a list from a cache that is older than the latest known state.
	// The status does not show this, but the generation shows whether the state includes the
	// request that this watch waits for.
	if !sameObject || update.Object.GetGeneration() < v.latest.GetGeneration() {
		return nil
	}
	var before T
	if v.latestPrinted {
		before = v.latest
	}
	v.latest, v.latestPrinted = update.Object, true
	return v.kind.describeChanges(before, update.Object)
}

func (v *objectView[T]) renderLines(int) []string {
	return v.kind.renderDetail(v.outputStyle(), v.latest, v.now())
}

func (v *objectView[T]) isFinished() (bool, error) {
	switch {
	case v.kind.isFinished(v.latest) && !v.kind.isSuccessful(v.latest):
		return true, errUnsuccessful
	case v.kind.isFinished(v.latest):
		return true, nil
	case !v.exists:
		return true, fmt.Errorf("%s was deleted", v.kind.qualifiedName(v.latest))
	default:
		return false, nil
	}
}

// listView shows objects as the rows of a table.
type listView[T client.Object] struct {
	*environment

	kind           *watchableKind[T]
	showNamespaces bool
	endless        bool
	objects        map[client.ObjectKey]T
	// anyFailed is set when a deleted object had failed or had not finished.
	anyFailed, anySeen bool
}

func newListView[T client.Object](e *environment, kind *watchableKind[T]) *listView[T] {
	return &listView[T]{environment: e, kind: kind, objects: map[client.ObjectKey]T{}}
}

func (v *listView[T]) applyUpdate(update follow.ObjectUpdate[T]) []render.Change {
	key := client.ObjectKeyFromObject(update.Object)
	name := displayName(key, v.showNamespaces)
	changes := prefixChanges(name, v.kind.describeChanges(v.objects[key], update.Object))
	v.anySeen = true
	if !update.Deleted {
		v.objects[key] = update.Object
		return changes
	}
	delete(v.objects, key)
	v.anyFailed = v.anyFailed || !v.kind.isFinished(update.Object) || !v.kind.isSuccessful(update.Object)
	return append(changes, render.Change{Text: name + " was deleted"})
}

func (v *listView[T]) renderLines(columns int) []string {
	objects := slices.SortedFunc(maps.Values(v.objects), func(a, b T) int {
		return cmp.Or(decision.CompareTrueFirst(v.kind.needsAttention(a), v.kind.needsAttention(b)), compareNames(a, b))
	})
	lines := v.kind.renderTable(v.outputStyle(), objects, v.now()).LinesWithin(columns, v.showNamespaces)
	return append(lines, v.kind.renderLegend(v.outputStyle())...)
}

func (v *listView[T]) isFinished() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.anySeen {
		return true, fmt.Errorf("no %s to wait for", v.kind.kindName)
	}
	failed := v.anyFailed
	for _, object := range v.objects {
		if !v.kind.isFinished(object) {
			return false, nil
		}
		failed = failed || !v.kind.isSuccessful(object)
	}
	if failed {
		return true, errUnsuccessful
	}
	return true, nil
}

// compareNames orders objects by namespace and name.
func compareNames(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func displayName(key client.ObjectKey, showNamespace bool) string {
	if showNamespace {
		return key.String()
	}
	return key.Name
}

// prefixChanges puts the name of the object before the text of each change.
func prefixChanges(name string, changes []render.Change) []render.Change {
	for i := range changes {
		changes[i].Text = name + " " + changes[i].Text
	}
	return changes
}
