package ui

import (
	"net/url"
	"slices"
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
	// only is the namespace to which lists are limited; empty for all of the scope.
	only string
	// log is the step whose log is shown; nil without a log, and empty for a session.
	log *string
}

const (
	viewOverview = "overview"
	viewSearch   = "search"
	viewStale    = "stale"
	viewList     = "list"
	viewObject   = "object"
	viewDead     = "dead"
	viewWorkers  = "workers"
	viewChanges  = "changes"
	viewLogs     = "logs"
	viewRuns     = "runs"
	viewEvents   = "events"
	viewYAML     = "yaml"
)

// parseLocation returns the page of a path; nil if it does not exist.
func parseLocation(path string, query url.Values) *location {
	switch path {
	case "/":
		return &location{view: viewOverview, only: truncate(query.Get("ns"))}
	case "/search":
		return &location{view: viewSearch, query: view.Query{Text: truncate(query.Get("q"))}, only: truncate(query.Get("ns"))}
	case "/stale":
		return &location{view: viewStale}
	}
	const list, object, part, maxWords = 2, 4, 5, 6 // words
	words := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxWords)
	if len(words) < list || words[0] != "k" || view.KindOf(words[1]) == nil {
		return nil
	}
	place := &location{view: viewList, kind: view.KindOf(words[1]), query: view.Query{Text: truncate(query.Get("q"))}, only: truncate(query.Get("ns"))}
	switch len(words) {
	case list:
		place.query.Page, _ = strconv.Atoi(query.Get("page")) // another value is the first page
		return place
	case object:
		if place.view = viewObject; query.Has("log") {
			place.log = new(query.Get("log"))
		}
	case part:
		if place.view = words[object]; !slices.Contains(partKinds[place.view], place.kind) {
			return nil
		}
		if place.view == viewLogs {
			place.log = new("")
		}
	default:
		return nil
	}
	place.namespace, place.name = words[list], words[list+1]
	return place
}

// IsPage reports whether a path, with its query, is the address of a page.
func IsPage(text string) bool {
	address, err := url.Parse(text)
	return err == nil && address.Scheme == "" && address.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") && parseLocation(address.Path, nil) != nil
}

// partKinds are the pages about a part of an object, with the kinds of the object.
var partKinds = map[string][]*view.Kind{
	viewDead: {view.Queues}, viewWorkers: {view.Pools}, viewChanges: {view.Sessions}, viewLogs: {view.Sequences}, viewRuns: {view.Sequences, view.Sessions},
	viewEvents: {view.Sequences, view.Sessions}, viewYAML: view.Kinds,
}

// isReadOnce reports whether the page shows data that was read when it was opened, without a stream.
func (l *location) isReadOnce() bool {
	return partKinds[l.view] != nil && l.view != viewLogs && l.view != viewRuns
}

func truncate(text string) string {
	const maxBytes = 200
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
