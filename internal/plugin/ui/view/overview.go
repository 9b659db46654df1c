package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// WatchState is whether the objects of a kind are known.
type WatchState struct {
	// Synced is set once all objects have been read.
	Synced bool
	// Problem is why they cannot be read now; empty without a problem.
	Problem string
	// Lost is when the connection was lost; zero while it works.
	Lost time.Time
	// Denied is set if they cannot be listed without a change: the permission or the kind is missing.
	Denied bool
}

// State is all that is known about the cluster.
type State struct {
	Scope   Scope
	Entries map[*Kind][]*Entry
	Watches map[*Kind]WatchState
}

// The number of objects and namespaces that the overview lists.
const (
	maxAttention  = 50
	maxFinished   = 20
	maxNamespaces = 20
)

// KindCount counts the objects of a kind by level.
type KindCount struct {
	Kind                                        *Kind
	Total, Active, Waiting, Problems, Attention int
	State                                       WatchState
}

// NamespaceCount counts the objects of a namespace.
type NamespaceCount struct {
	Namespace        string
	Total, Attention int
}

// Overview is the first page.
type Overview struct {
	Kinds []KindCount
	// Namespaces lists the namespaces with the most objects that need attention.
	Namespaces []NamespaceCount
	// Attention lists objects that need attention: objects that wait for a decision first, then the latest.
	Attention     []*Entry
	MoreAttention int
	// Finished lists the latest runs that ended today.
	Finished          []*Entry
	Completed, Failed int
	// Loading is set until all permitted objects have been read.
	Loading bool
}

// NewOverview computes the first page. Today begins at midnight in the location of now.
func NewOverview(state *State, now time.Time) *Overview {
	o := &Overview{}
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	namespaces := map[string]*NamespaceCount{}
	for _, kind := range Kinds {
		total := KindCount{Kind: kind, State: state.Watches[kind]}
		o.Loading = o.Loading || !total.State.Synced && total.State.Problem == ""
		for _, e := range state.Entries[kind] {
			total.add(e)
			n := namespaces[e.Namespace]
			if n == nil {
				n = &NamespaceCount{Namespace: e.Namespace}
				namespaces[e.Namespace] = n
			}
			n.Total++
			if e.NeedsAttention {
				n.Attention++
				o.Attention = append(o.Attention, e)
			}
			if !e.Finished.Before(midnight) && !e.Finished.IsZero() {
				o.Finished = append(o.Finished, e)
				if e.Level == LevelGood {
					o.Completed++
				} else {
					o.Failed++
				}
			}
		}
		o.Kinds = append(o.Kinds, total)
	}
	slices.SortFunc(o.Attention, func(a, b *Entry) int {
		return cmp.Or(decision.CompareTrueFirst(a.Asks, b.Asks), b.Since.Compare(a.Since), CompareEntries(a, b))
	})
	o.MoreAttention = max(0, len(o.Attention)-maxAttention)
	o.Attention = o.Attention[:len(o.Attention)-o.MoreAttention]
	slices.SortFunc(o.Finished, func(a, b *Entry) int { return cmp.Or(b.Finished.Compare(a.Finished), CompareEntries(a, b)) })
	o.Finished = o.Finished[:min(len(o.Finished), maxFinished)]
	counts := slices.SortedFunc(maps.Values(namespaces), func(a, b *NamespaceCount) int {
		return cmp.Or(cmp.Compare(b.Attention, a.Attention), cmp.Compare(a.Namespace, b.Namespace))
	})
	for _, n := range counts[:min(len(counts), maxNamespaces)] {
		o.Namespaces = append(o.Namespaces, *n)
	}
	return o
}

func (c *KindCount) add(e *Entry) {
	c.Total++
	switch e.Level {
	case LevelActive:
		c.Active++
	case LevelWaiting:
		c.Waiting++
	case LevelProblem:
		c.Problems++
	case LevelNone, LevelGood:
	}
	if e.NeedsAttention {
		c.Attention++
	}
}
