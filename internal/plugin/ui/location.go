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
	const list, object, part, maxWords = 2, 4, 5, 6 // words
	words := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxWords)
	if len(words) < list || words[0] != "k" || view.KindOf(words[1]) == nil {
		return nil
	}
	place := &location{view: viewList, kind: view.KindOf(words[1]), query: view.Query{Text: truncate(query.Get("q"))}}
	switch len(words) {
	case list:
		place.query.Page, _ = strconv.Atoi(query.Get("page")) // another value is the first page
		return place
	case object:
		if place.view = viewObject; query.Has("log") {
			place.log = new(query.Get("log"))
		}
	case part:
		if place.view = words[object]; partKinds[place.view] != place.kind {
			return nil
		}
	default:
		return nil
	}
	place.namespace, place.name = words[list], words[list+1]
	return place
}

// partKinds are the pages about a part of an object, with the kind of the object.
var partKinds = map[string]*view.Kind{viewDead: view.Queues, viewWorkers: view.Pools, viewChanges: view.Sessions}

// isReadOnce reports whether the page shows data that was read when it was opened, without a stream.
func (l *location) isReadOnce() bool { return partKinds[l.view] != nil }

func truncate(text string) string {
	const maxBytes = 200
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
