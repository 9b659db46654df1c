package ui

import (
	"context"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/prometheus"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The limits of the history from Prometheus.
const (
	pastInterval = 30 * time.Second
	pastPoints   = 360
	minPastStep  = 5 * time.Second
	maxPasts     = 100
	// maxPastReads is how many requests run at the same time.
	maxPastReads = 4
)

// History reads the history of charts from Prometheus.
type History struct {
	Client *prometheus.Client
	Window time.Duration
}

// pasts holds the history from Prometheus, which all pages share.
type pasts struct {
	mu      sync.Mutex
	objects map[string]*pastOfObject
	reads   int
}

type pastOfObject struct {
	past      *view.Past
	read      time.Time
	isReading bool
}

// past returns the last known history of an object. It never waits for Prometheus: when the response arrives, all pages are computed
// again.
func (s *Server) past(ctx context.Context, entry *view.Entry) *view.Past {
	if s.History == nil {
		return &view.Past{}
	}
	p := &s.pasts
	p.mu.Lock()
	defer p.mu.Unlock()
	key := entry.Kind.Path + "/" + entry.Namespace + "/" + entry.Name
	object := p.objects[key]
	if object == nil {
		if len(p.objects) >= maxPasts {
			p.objects = nil
		}
		if p.objects == nil {
			p.objects = map[string]*pastOfObject{}
		}
		object = &pastOfObject{past: &view.Past{Window: s.History.Window, Loading: true}}
		p.objects[key] = object
	}
	if !object.isReading && p.reads < maxPastReads && s.Now().Sub(object.read) >= pastInterval {
		object.isReading = true
		p.reads++
		go s.readPast(context.WithoutCancel(ctx), entry, object)
	}
	return object.past
}

func (s *Server) readPast(ctx context.Context, entry *view.Entry, object *pastOfObject) {
	window := s.History.Window
	step := max(minPastStep, (window / pastPoints).Round(time.Second))
	series, err := s.History.Client.Range(ctx, view.PastQuery(entry), s.Now(), window, step)
	past := &view.Past{Window: window}
	if err == nil {
		past = view.NewPast(entry, series, window, step)
	} else {
		past.Problem = err.Error()
	}
	s.pasts.mu.Lock()
	object.past, object.read, object.isReading = past, s.Now(), false
	s.pasts.reads--
	s.pasts.mu.Unlock()
	s.Store.Notify()
}
