package view

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Scope selects the objects of the pages.
type Scope struct {
	// Namespaces; empty for all.
	Namespaces []string
	// Selector of labels; nil for all objects.
	Selector labels.Selector
}

// Contains reports whether objects of a namespace are shown.
func (s *Scope) Contains(namespace string) bool {
	return len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace)
}

// String describes the scope for people.
func (s *Scope) String() string {
	text := "all namespaces"
	switch len(s.Namespaces) {
	case 0:
	case 1:
		text = "namespace " + s.Namespaces[0]
	default:
		text = "namespaces " + strings.Join(s.Namespaces, ", ")
	}
	if s.Selector != nil && !s.Selector.Empty() {
		text += ", labels " + s.Selector.String()
	}
	return text
}

// commands returns the command for each namespace, because a command reads one namespace or all.
func (s *Scope) commands(command ...string) [][]string {
	places := []string{"--all-namespaces"}
	if len(s.Namespaces) > 0 {
		places = nil
	}
	for _, namespace := range s.Namespaces {
		places = append(places, "--namespace="+namespace)
	}
	var all [][]string
	for _, place := range places {
		words := append(slices.Clip(command), place)
		if s.Selector != nil && !s.Selector.Empty() {
			words = append(words, "--selector="+s.Selector.String())
		}
		all = append(all, words)
	}
	return all
}

// MergeStates returns the state of a kind from its states in each namespace.
func MergeStates(states []WatchState) WatchState {
	if len(states) == 1 {
		return states[0]
	}
	merged := WatchState{Synced: true, Denied: true}
	var problems []string
	for _, state := range states {
		merged.Synced = merged.Synced && (state.Synced || state.Problem != "")
		merged.Denied = merged.Denied && state.Denied
		if state.Problem != "" && !slices.Contains(problems, state.Problem) {
			problems = append(problems, state.Problem)
		}
		if merged.Lost.IsZero() || !state.Lost.IsZero() && state.Lost.Before(merged.Lost) {
			merged.Lost = state.Lost
		}
	}
	merged.Problem = strings.Join(problems, "; ")
	return merged
}
