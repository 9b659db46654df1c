package ui

import (
	"context"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// content is what a page shows now.
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
