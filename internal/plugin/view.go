package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// oneView shows one object, until it has ended.
type oneView[T client.Object] struct {
	*environment

	kind *ending[T]
	// last is how it stood when it was last seen, told whether that is known already.
	last T
	told bool
	// there says that it has been seen, and not been seen to go, since the watch began.
	there bool
}

func (v *oneView[T]) see(sight follow.Sight[T]) []string {
	same := sight.Object.GetUID() == v.last.GetUID() // not another that has got the name since
	v.there = same && !sight.Gone
	// A list may be served from before what was last seen. A status says nothing about
	// that; the generation tells whether what this watch is about has been asked for yet.
	if !same || sight.Object.GetGeneration() < v.last.GetGeneration() {
		return nil
	}
	var before T
	if v.told {
		before = v.last
	}
	v.last, v.told = sight.Object, true
	return v.kind.changes(before, sight.Object)
}

func (v *oneView[T]) lines() []string { return v.kind.whole(v.style(), v.last, v.now()) }

func (v *oneView[T]) over() (bool, error) {
	switch {
	case v.kind.ended(v.last):
		return true, v.kind.outcome(v.last)
	case !v.there:
		return true, fmt.Errorf("%s was deleted", v.kind.called(v.last))
	default:
		return false, nil
	}
}

// manyView shows objects as rows.
type manyView[T client.Object] struct {
	*environment

	kind       *ending[T]
	namespaces bool
	endless    bool
	seen       map[client.ObjectKey]T
	// failed is set when one failed that may be gone by now, or went before it ended.
	failed, any bool
}

func newManyView[T client.Object](e *environment, kind *ending[T]) *manyView[T] {
	return &manyView[T]{environment: e, kind: kind, seen: map[client.ObjectKey]T{}}
}

func (v *manyView[T]) see(sight follow.Sight[T]) []string {
	key := client.ObjectKeyFromObject(sight.Object)
	name := key.Name
	if v.namespaces {
		name = key.String()
	}
	var lines []string
	for _, change := range v.kind.changes(v.seen[key], sight.Object) {
		lines = append(lines, name+" "+change)
	}
	v.any = true
	if !sight.Gone {
		v.seen[key] = sight.Object
		return lines
	}
	delete(v.seen, key)
	v.failed = v.failed || !v.kind.ended(sight.Object) || v.kind.outcome(sight.Object) != nil
	return append(lines, name+" was deleted")
}

func (v *manyView[T]) lines() []string {
	objects := make([]T, 0, len(v.seen))
	for _, object := range v.seen {
		objects = append(objects, object)
	}
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	rows := v.kind.rows
	if v.namespaces {
		rows = v.kind.rowsOfNamespaces
	}
	return append(rows(v.style(), objects, v.now()), v.kind.legend(v.style())...)
}

func (v *manyView[T]) over() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.any {
		return true, fmt.Errorf("there is no %s to wait for", v.kind.name)
	}
	failed := v.failed
	for _, object := range v.seen {
		if !v.kind.ended(object) {
			return false, nil
		}
		failed = failed || v.kind.outcome(object) != nil
	}
	if failed {
		return true, errFound
	}
	return true, nil
}
