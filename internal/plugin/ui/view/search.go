package view

import "slices"

// Found are the objects of a kind that a search found.
type Found struct {
	Kind *Kind
	Rows []*Entry
	More int
}

// Search is the page of a search over all kinds.
type Search struct {
	Text  string
	Kinds []Found
}

// NewSearch finds objects whose name, namespace, status or reason contain the text.
func NewSearch(state *State, text string) *Search {
	const maxRows = 25
	s := &Search{Text: text}
	if text == "" {
		return s
	}
	for _, kind := range Kinds {
		var rows []*Entry
		for _, e := range state.Entries[kind] {
			if e.Matches(text) {
				rows = append(rows, e)
			}
		}
		slices.SortFunc(rows, CompareEntries)
		if shown := min(len(rows), maxRows); shown > 0 {
			s.Kinds = append(s.Kinds, Found{kind, rows[:shown], len(rows) - shown})
		}
	}
	return s
}
