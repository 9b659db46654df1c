package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

func (s *Server) servePage(w http.ResponseWriter, r *http.Request, path string) {
	place := parseLocation(path, r.URL.Query())
	shell := &page.Shell{Links: s.links, Place: s.Place, Title: "Not found", Current: "none"}
	if place == nil || r.Method == http.MethodPost {
		s.write(w, http.StatusNotFound, shell.Document(page.Message("Not found", "There is no such page.")))
		return
	}
	shell.Title, shell.Current = describe(place)
	s.chooseLog(place)
	if place.log != nil {
		shell.LogTitle, shell.LogFile, shell.Talk = "Log", s.links.LogFile(place.kind, place.namespace, place.name, *place.log), s.talkEntry(place)
		if *place.log != "" {
			shell.LogTitle = "Log of step " + *place.log
		}
	}
	var content g.Node
	if place.isReadOnce() {
		content = s.readOnce(r.Context(), place)
	} else {
		shell.Events = s.links.Events(path, r.URL.RawQuery)
		content = s.content(r.Context(), place)
	}
	s.write(w, http.StatusOK, shell.Document(content))
}

// chooseLog chooses the log of a page that names none: that of the step of a sequence that failed, or else that runs.
func (s *Server) chooseLog(place *location) {
	if place.view != viewObject || place.log != nil {
		return
	}
	if entry, _ := s.entry(place); entry != nil {
		place.log = view.StepToShow(entry)
	}
}

func describe(place *location) (title, current string) {
	switch place.view {
	case viewStale:
		return "Stale Jobs", viewStale
	case viewList:
		return place.kind.Title, place.kind.Path
	case viewObject, viewDead, viewWorkers, viewChanges:
		return place.name + " · " + place.kind.Title, place.kind.Path
	default:
		return "Overview", ""
	}
}

func (s *Server) objectContent(ctx context.Context, place *location) g.Node {
	entry, state := s.entry(place)
	if entry == nil {
		return page.Missing(place.kind, place.namespace, place.name, state)
	}
	now := s.Now()
	var content g.Node
	switch object := entry.Object.(type) {
	case *v1alpha1.SequentialJob:
		content = page.Sequence(s.links, view.NewSequence(entry, object, now))
	case *v1alpha1.AgenticSession:
		content = page.Session(s.links, view.NewSession(entry, object, now))
	case *v1alpha1.Queue:
		content = page.Queue(s.links, view.NewQueue(entry, object, s.Store.History(entry), s.past(ctx, entry)))
	case *v1alpha1.WorkerPool:
		content = page.Pool(s.links, view.NewPool(entry, object, s.Store.History(entry), s.past(ctx, entry), now))
	case *v1alpha1.Schedule:
		content = page.Schedule(s.links, view.NewSchedule(entry, object, s.Store.Snapshot(), now))
	}
	return g.Group{page.WatchProblem(state), content}
}

// readOnce is the content of a page that shows the output of a command when it is opened.
func (s *Server) readOnce(ctx context.Context, place *location) g.Node {
	entry, state := s.entry(place)
	switch {
	case entry == nil:
		return page.Missing(place.kind, place.namespace, place.name, state)
	case place.view == viewWorkers:
		result := s.runCommand(ctx, view.WorkerList(entry))
		return page.Workers(s.links, view.NewWorkers(entry, result.output, result.problem()))
	case place.view == viewChanges:
		result := s.runCommand(ctx, view.ChangesCommand(entry))
		return page.Changes(s.links, view.NewChanges(entry, result.output, strings.TrimSpace(cleanLines(result.errors))))
	default:
		result := s.runCommand(ctx, view.DeadLetterList(entry, place.query.Text))
		var letters []view.DeadLetter
		problem := result.problem()
		if problem == "" && len(result.output) > 0 {
			if err := json.Unmarshal(result.output, &letters); err != nil {
				problem = "The dead letters cannot be read: " + err.Error()
			}
		}
		return page.DeadLetters(s.links, entry, letters, place.query.Text, problem)
	}
}

// content is the current content of a page with a stream.
func (s *Server) content(ctx context.Context, place *location) g.Node {
	switch place.view {
	case viewStale:
		return page.Stale(s.links, s.stale.read(ctx, s))
	case viewList:
		return page.List(s.links, view.NewList(s.Store.Snapshot(), place.kind, place.query))
	case viewObject:
		return s.objectContent(ctx, place)
	default:
		return page.Overview(s.links, view.NewOverview(s.Store.Snapshot(), s.Now()))
	}
}

// staleInterval is how long a report is shown before the Jobs are read again.
const staleInterval = time.Minute

// staleReports holds the last report of stale Jobs, which all pages share.
type staleReports struct {
	mu   sync.Mutex
	last *view.Stale
}

func (r *staleReports) read(ctx context.Context, s *Server) *view.Stale {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && s.Now().Sub(r.last.Read) < staleInterval {
		return r.last
	}
	var outputs [][]byte
	var problems []string
	for _, command := range view.StaleCommands(s.Store.Scope()) {
		result := s.runCommand(ctx, command)
		if problem := result.problem(); problem != "" {
			problems = append(problems, problem)
			continue
		}
		outputs = append(outputs, result.output)
	}
	r.last = view.NewStale(s.Store.Scope(), outputs, strings.Join(problems, "; "), s.Now())
	return r.last
}
