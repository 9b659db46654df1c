package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/board"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// stepsView shows one SequentialJob step by step, until it has ended.
type stepsView struct {
	*environment

	// last is how it stood when it was last seen, told whether that is known already.
	last *v1alpha1.SequentialJob
	told bool
	// there says that it has been seen, and not been seen to go, since the watch began.
	there bool
}

func (v *stepsView) see(sight follow.Sight[*v1alpha1.SequentialJob]) []string {
	same := sight.Object.UID == v.last.UID // not another that has got the name since
	v.there = same && !sight.Gone
	// A list may be served from before what was last seen. A status says nothing about
	// that; the generation tells whether what this watch is about has been asked for yet.
	if !same || sight.Object.Generation < v.last.Generation {
		return nil
	}
	before := v.last
	if !v.told {
		before, v.told = nil, true
	}
	v.last = sight.Object
	return board.Changes(before, sight.Object)
}

func (v *stepsView) lines() []string { return board.Steps(v.style(), v.last, v.now()) }

func (v *stepsView) over() (bool, error) {
	switch {
	case ended(v.last):
		return true, outcome(v.last)
	case !v.there:
		return true, fmt.Errorf("%s was deleted", sequentialKind().called(v.last))
	default:
		return false, nil
	}
}

// rowsView shows SequentialJobs as rows.
type rowsView struct {
	*environment

	namespaces bool
	endless    bool
	seen       map[client.ObjectKey]*v1alpha1.SequentialJob
	// failed is set when one failed that may be gone by now, or went before it ended.
	failed, any bool
}

func (v *rowsView) see(sight follow.Sight[*v1alpha1.SequentialJob]) []string {
	key := client.ObjectKeyFromObject(sight.Object)
	name := key.Name
	if v.namespaces {
		name = key.String()
	}
	var lines []string
	for _, change := range board.Changes(v.seen[key], sight.Object) {
		lines = append(lines, name+" "+change)
	}
	v.any = true
	if !sight.Gone {
		v.seen[key] = sight.Object
		return lines
	}
	delete(v.seen, key)
	v.failed = v.failed || !ended(sight.Object) || outcome(sight.Object) != nil
	return append(lines, name+" was deleted")
}

func (v *rowsView) lines() []string {
	sjs := make([]*v1alpha1.SequentialJob, 0, len(v.seen))
	for _, sj := range v.seen {
		sjs = append(sjs, sj)
	}
	slices.SortFunc(sjs, func(a, b *v1alpha1.SequentialJob) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	rows := board.Rows
	if v.namespaces {
		rows = board.RowsOfNamespaces
	}
	return append(rows(v.style(), sjs, v.now()), "", board.Legend(v.style()))
}

func (v *rowsView) over() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.any {
		return true, errors.New("there is no SequentialJob to wait for")
	}
	failed := v.failed
	for _, sj := range v.seen {
		if !ended(sj) {
			return false, nil
		}
		failed = failed || outcome(sj) != nil
	}
	if failed {
		return true, errFound
	}
	return true, nil
}

// outcome is what the exit code tells of a run that has ended.
func outcome(sj *v1alpha1.SequentialJob) error {
	if sj.Status.Phase == v1alpha1.PhaseFailed {
		return errFound
	}
	return nil
}
