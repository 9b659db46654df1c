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

// sessionView shows one AgenticSession, until it rests.
type sessionView struct {
	*environment

	// last is how it stood when it was last seen, told whether that is known already.
	last *v1alpha1.AgenticSession
	told bool
	// there says that it has been seen, and not been seen to go, since the watch began.
	there bool
}

func (v *sessionView) see(sight follow.Sight[*v1alpha1.AgenticSession]) []string {
	same := sight.Object.UID == v.last.UID // not another that has got the name since
	v.there = same && !sight.Gone
	// A list may be served from before what was last seen.
	if !same || sight.Object.Generation < v.last.Generation {
		return nil
	}
	before := v.last
	if !v.told {
		before, v.told = nil, true
	}
	v.last = sight.Object
	return board.SessionChanges(before, sight.Object)
}

func (v *sessionView) lines() []string { return board.Session(v.style(), v.last, v.now()) }

func (v *sessionView) over() (bool, error) {
	switch {
	case rests(v.last):
		return true, sessionOutcome(v.last)
	case !v.there:
		return true, fmt.Errorf("%s was deleted", sessionKind().called(v.last))
	default:
		return false, nil
	}
}

// sessionsView shows AgenticSessions as rows.
type sessionsView struct {
	*environment

	namespaces bool
	endless    bool
	seen       map[client.ObjectKey]*v1alpha1.AgenticSession
	// failed is set when one did not complete that may be gone by now.
	failed, any bool
}

func (v *sessionsView) see(sight follow.Sight[*v1alpha1.AgenticSession]) []string {
	key := client.ObjectKeyFromObject(sight.Object)
	name := key.Name
	if v.namespaces {
		name = key.String()
	}
	var lines []string
	for _, change := range board.SessionChanges(v.seen[key], sight.Object) {
		lines = append(lines, name+" "+change)
	}
	v.any = true
	if !sight.Gone {
		v.seen[key] = sight.Object
		return lines
	}
	delete(v.seen, key)
	v.failed = v.failed || !rests(sight.Object) || sessionOutcome(sight.Object) != nil
	return append(lines, name+" was deleted")
}

func (v *sessionsView) lines() []string {
	var sessions []*v1alpha1.AgenticSession
	for _, s := range v.seen {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b *v1alpha1.AgenticSession) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	rows := board.Sessions
	if v.namespaces {
		rows = board.SessionsOfNamespaces
	}
	return rows(v.style(), sessions, v.now())
}

func (v *sessionsView) over() (bool, error) {
	if v.endless {
		return false, nil
	}
	if !v.any {
		return true, errors.New("there is no AgenticSession to wait for")
	}
	failed := v.failed
	for _, s := range v.seen {
		if !rests(s) {
			return false, nil
		}
		failed = failed || sessionOutcome(s) != nil
	}
	if failed {
		return true, errFound
	}
	return true, nil
}
