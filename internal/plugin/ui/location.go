package ui

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// location is a page: an object, a list, or another view.
type location struct {
	// view is one of the constants below.
	view            string
	kind            *view.Kind
	namespace, name string
	query           view.Query
	// log is the step whose log is shown; nil without a log, and empty for a session.
	log *string
}

const (
	viewOverview = "overview"
	viewStale    = "stale"
	viewList     = "list"
	viewObject   = "object"
	viewDead     = "dead"
	viewWorkers  = "workers"
	viewChanges  = "changes"
)

// parseLocation returns the page of a path; nil if it does not exist.
func parseLocation(path string, query url.Values) *location {
	switch path {
	case "/":
		return &location{view: viewOverview}
	case "/stale":
		return &location{view: viewStale}
	}
	const maxWords = 6
	words := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxWords)
	const list = 2 // words
	if len(words) < list || words[0] != "k" || view.KindOf(words[1]) == nil {
		return nil
	}
	kind := view.KindOf(words[1])
	if len(words) == list {
		page, _ := strconv.Atoi(query.Get("page")) // another value is the first page
		return &location{view: viewList, kind: kind, query: view.Query{Text: truncate(query.Get("q")), Page: page}}
	}
	return parseObjectLocation(kind, words[list:], query)
}

// partKinds are the pages about a part of an object, with the kind of the object.
var partKinds = map[string]*view.Kind{viewDead: view.Queues, viewWorkers: view.Pools, viewChanges: view.Sessions}

// parseObjectLocation returns the page of an object, or of a part of it.
func parseObjectLocation(kind *view.Kind, words []string, query url.Values) *location {
	const object, part = 2, 3 // words
	if len(words) < object {
		return nil
	}
	place := &location{view: viewObject, kind: kind, namespace: words[0], name: words[1]}
	switch {
	case len(words) == object && query.Has("log"):
		place.log = new(query.Get("log"))
	case len(words) == object:
	case len(words) == part && partKinds[words[object]] == kind:
		place.view, place.query = words[object], view.Query{Text: truncate(query.Get("q"))}
	default:
		return nil
	}
	return place
}

// isReadOnce reports whether the page shows data that was read when it was opened, without a stream.
func (l *location) isReadOnce() bool { return partKinds[l.view] != nil }

func truncate(text string) string {
	const maxBytes = 200
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
