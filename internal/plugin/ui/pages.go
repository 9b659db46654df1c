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
	shell := &page.Shell{Links: s.links, Place: s.Place, Title: "Not found", Current: "none", Share: view.CommandLine(s.CommandFlags, append([]string{"ui"}, s.ScopeFlags...))}
	if place == nil || r.Method == http.MethodPost {
		s.write(w, http.StatusNotFound, shell.Document(page.Message("Not found", "There is no such page.")))
		return
	}
	shell.Title, shell.Current = describe(place)
	state := s.Store.Snapshot()
	shell.Links, shell.Namespaces, shell.Query = s.linksOf(place), state.Namespaces(), place.query.Text
	if place.view == viewList {
		shell.Filtered = place.kind
	}
	s.chooseLog(place)
	s.setLog(shell, place)
	if !place.isReadOnce() {
		shell.Events = s.links.Events(path, r.URL.RawQuery)
	}
	s.write(w, http.StatusOK, shell.Document(s.content(r.Context(), place, state)))
}

// linksOf returns the links of a page, which keep its namespace.
func (s *Server) linksOf(place *location) page.Links {
	links := s.links
	links.Namespace, links.ShowNamespaces = place.only, place.only == "" && len(s.Store.Scope().Namespaces) != 1
	return links
}

func (s *Server) setLog(shell *page.Shell, place *location) {
	if place.log == nil {
		return
	}
	shell.LogTitle, shell.LogFile, shell.Talk = "Log", s.links.LogFile(place.kind, place.namespace, place.name, *place.log), s.talkEntry(place)
	if *place.log != "" {
		shell.LogTitle = "Log of step " + *place.log
	}
	if entry, _ := s.entry(place); entry != nil && place.kind == view.Sessions {
		shell.LogTitle, shell.IsConversation, shell.Prompt = "Conversation", true, view.Prompt(entry)
	}
}

// chooseLog chooses the log of a page that names none: the conversation of a session, or the log of the step of a sequence that failed,
// or else that runs.
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
	case viewSearch:
		return "Search", viewSearch
	case viewOverview:
		return "Overview", ""
	default:
		return place.name + " · " + place.kind.Title, place.kind.Path
	}
}

func (s *Server) objectContent(ctx context.Context, place *location, state *view.State) g.Node {
	entry, watch := s.entry(place)
	if entry == nil {
		return page.Missing(place.kind, place.namespace, place.name, watch)
	}
	now := s.Now()
	switch place.view {
	case viewLogs:
		return page.Log(s.links, entry)
	case viewRuns:
		return page.Runs(s.links, entry, state.Runs(view.SeriesOf(entry)), now)
	}
	switch object := entry.Object.(type) {
	case *v1alpha1.SequentialJob:
		return page.Sequence(s.links, view.NewSequence(entry, object, state.Runs(view.SeriesOf(entry)), now))
	case *v1alpha1.AgenticSession:
		return page.Session(s.links, view.NewSession(entry, object, now))
	case *v1alpha1.Queue:
		return page.Queue(s.links, view.NewQueue(entry, object, s.Store.History(entry), s.past(ctx, entry)))
	case *v1alpha1.WorkerPool:
		return page.Pool(s.links, view.NewPool(entry, object, s.Store.History(entry), s.past(ctx, entry), now))
	case *v1alpha1.Schedule:
		return page.Schedule(s.links, view.NewSchedule(entry, object, state, now))
	}
	return nil
}

// readOnce is the content of a page that shows the output of a command when it is opened.
func (s *Server) readOnce(ctx context.Context, place *location) g.Node {
	entry, state := s.entry(place)
	switch {
	case entry == nil:
		return page.Missing(place.kind, place.namespace, place.name, state)
	case place.view == viewEvents:
		result := s.runCommand(ctx, view.DescribeCommand(entry, "--output=json"))
		return page.Description(s.links, view.NewDescription(entry, result.output, strings.TrimSpace(cleanLines(result.errors))))
	case place.view == viewYAML:
		result := s.runCommand(ctx, view.YAMLCommand(entry))
		return page.YAML(s.links, entry, cleanLines(result.output), result.problem())
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

// content is the content of a page in a state of the cluster.
func (s *Server) content(ctx context.Context, place *location, state *view.State) g.Node {
	return g.Group{page.Lost(state.Lost()), s.viewContent(ctx, place, state)}
}

func (s *Server) viewContent(ctx context.Context, place *location, state *view.State) g.Node {
	links := s.linksOf(place)
	switch {
	case place.isReadOnce():
		return s.readOnce(ctx, place)
	case place.view == viewStale:
		return page.Stale(links, s.stale.read(ctx, s))
	case place.view == viewList:
		return page.List(links, view.NewList(state.In(place.only), place.kind, place.query, s.Now()))
	case place.view == viewSearch:
		return page.Search(links, view.NewSearch(state.In(place.only), place.query.Text))
	case place.view == viewOverview:
		return page.Overview(links, view.NewOverview(state.In(place.only), s.Now()))
	default:
		return s.objectContent(ctx, place, state)
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
