package ui

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// location is a page: that of an object, a list, or another view.
type location struct {
	// view is overview, stale, list, object, dead or workers.
	view            string
	kind            *view.Kind
	namespace, name string
	query           view.Query
	// log is the step whose log is shown; nil without one, and empty for a session.
	log *string
}

const (
	viewOverview = "overview"
	viewStale    = "stale"
	viewList     = "list"
	viewObject   = "object"
	viewDead     = "dead"
	viewWorkers  = "workers"
)

// parseLocation returns the page of a path, or nil.
func parseLocation(path string, query url.Values) *location {
	switch path {
	case "/":
		return &location{view: viewOverview}
	case "/stale":
		return &location{view: viewStale}
	}
	const maxParts = 6
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxParts)
	const list, object, part = 2, 4, 5 // the number of parts
	if len(parts) < list || parts[0] != "k" {
		return nil
	}
	place := &location{view: viewList, kind: view.KindOf(parts[1])}
	if place.kind == nil {
		return nil
	}
	if len(parts) >= object {
		place.view, place.namespace, place.name = viewObject, parts[2], parts[3]
	}
	switch {
	case len(parts) == list:
		page, _ := strconv.Atoi(query.Get("page")) // another value is the first page
		place.query = view.Query{Text: truncate(query.Get("q")), Page: page}
	case len(parts) == object && query.Has("log"):
		place.log = new(query.Get("log"))
	case len(parts) == object:
	case len(parts) == part && parts[4] == viewDead && place.kind == view.Queues:
		place.view, place.query = viewDead, view.Query{Text: truncate(query.Get("q"))}
	case len(parts) == part && parts[4] == viewWorkers && place.kind == view.Pools:
		place.view = viewWorkers
	default:
		return nil
	}
	return place
}

// isReadOnce reports whether the page shows what it read when it was opened, without a stream.
func (l *location) isReadOnce() bool { return l.view == viewDead || l.view == viewWorkers }

// truncate limits the text of a filter.
func truncate(text string) string {
	const maxBytes = 200
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
