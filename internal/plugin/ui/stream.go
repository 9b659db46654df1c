package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The times of a stream.
const (
	// minRenderInterval is the time between two changes of a page. The first change is sent at once.
	minRenderInterval = 100 * time.Millisecond
	// maxRenderShare is how many times as long as computing and sending a page the pause after it is. More objects, and slower
	// browsers, get fewer changes a second instead of a whole core.
	maxRenderShare = 10
	// clockInterval is the time after which a page is computed again without a change: it may show times.
	clockInterval = 5 * time.Second
	// keepAliveInterval is the time after which a stream without changes sends a comment, which shows both sides that the connection
	// works.
	keepAliveInterval = 15 * time.Second
)

type stream struct {
	*Server

	place      *location
	writer     http.ResponseWriter
	controller *http.ResponseController
	// last is the present content of the page.
	last     []byte
	lastSent time.Time
}

func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	pageQuery, err := url.ParseQuery(query.Get("query"))
	place := parseLocation(query.Get("page"), pageQuery)
	if err != nil || place == nil || place.isReadOnce() {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	if !s.beginStream(w) {
		return
	}
	defer s.endStream()
	s.chooseLog(place)
	w.Header().Set("Content-Type", "text/event-stream")
	stream := &stream{Server: s, place: place, writer: w, controller: http.NewResponseController(w)}
	stream.send(r.Context())
}

// beginStream counts a stream, and reports whether there are not too many; otherwise it answers the request.
func (s *Server) beginStream(w http.ResponseWriter) bool {
	select {
	case s.streams <- struct{}{}:
		return true
	default:
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return false
	}
}

func (s *Server) endStream() { <-s.streams }

// send sends the page, and again whenever it changes, until ctx ends or the client has gone.
func (s *stream) send(ctx context.Context) {
	changed, stop := s.Store.Subscribe()
	defer stop()
	logs := s.followLog(ctx)
	clock := time.NewTicker(clockInterval)
	defer clock.Stop()
	if logs != nil && s.sendEvent("logreset", []byte("-")) != nil {
		return
	}
	err := s.sendContent(ctx)
	for pause := time.Duration(0); err == nil; {
		// While the pause lasts, changes wait in the channel.
		pending := changed
		var pauseOver <-chan time.Time
		if pause > 0 {
			pending, pauseOver = nil, time.After(pause)
		}
		pause = 0
		select {
		case <-ctx.Done():
			return
		case <-pauseOver:
		case <-pending:
			begin := time.Now()
			err = s.sendContent(ctx)
			pause = max(minRenderInterval, maxRenderShare*time.Since(begin))
		case <-clock.C:
			err = s.sendContent(ctx)
		case lines := <-logs: // the script of the page appends them as text
			var data []byte
			if data, err = json.Marshal(s.shown(lines)); err == nil {
				err = s.sendEvent("loglines", data)
			}
		}
	}
}

func (s *stream) sendContent(ctx context.Context) error {
	html, err := page.Render(s.content(ctx, s.place, s.Store.Snapshot()))
	if err != nil {
		return err
	}
	if bytes.Equal(html, s.last) {
		if time.Since(s.lastSent) > keepAliveInterval {
			return s.write([]byte(":\n\n"))
		}
		return nil
	}
	s.last = html
	return s.sendEvent("", s.last)
}

// shown returns the lines of a log, or the turns of the conversation of a session.
func (s *stream) shown(lines []string) any {
	if s.place.kind != view.Sessions {
		return lines
	}
	turns := []*view.Turn{}
	for _, line := range lines {
		if turn := view.NewTurn(line); turn != nil {
			turns = append(turns, turn)
		}
	}
	return turns
}

// sendEvent sends an event; without a name, htmx shows its data. Neither HTML nor JSON has carriage returns.
func (s *stream) sendEvent(name string, data []byte) error {
	var event bytes.Buffer
	if name != "" {
		event.WriteString("event: " + name + "\n")
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		event.WriteString("data: ")
		event.Write(line)
		event.WriteByte('\n')
	}
	event.WriteByte('\n')
	return s.write(event.Bytes())
}

func (s *stream) write(event []byte) error {
	s.lastSent = time.Now()
	if err := s.controller.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := s.writer.Write(event); err != nil {
		return err
	}
	return s.controller.Flush()
}

// serveLog sends a whole log as a file.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, path string) {
	place := parseLocation(path, nil)
	var entry *view.Entry
	if place != nil && place.view == viewObject {
		entry, _ = s.entry(place)
	}
	step := r.URL.Query().Get("step")
	if entry == nil || view.LogCommand(entry, step, true) == nil {
		s.writeMessage(w, r, http.StatusNotFound, "Not found", "There is no such log.")
		return
	}
	if !s.beginStream(w) {
		return
	}
	defer s.endStream()
	name := strings.Trim(entry.Name+"-"+step, "-") + ".log"
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	s.Run(r.Context(), view.LogCommand(entry, step, true), http.NoBody, w, w)
}

// followLog follows the log of the page, if it shows a log. The channel has no buffer: a log is read only as fast as the page shows
// it.
func (s *stream) followLog(ctx context.Context) <-chan []string {
	if s.place.log == nil {
		return nil
	}
	entry, _ := s.entry(s.place)
	if entry == nil {
		return nil
	}
	args := view.LogCommand(entry, *s.place.log, false)
	if args == nil {
		return nil
	}
	lines := newLineBatcher(ctx)
	go lines.run(func() { s.Run(ctx, args, http.NoBody, &lineWriter{batcher: lines}, &lineWriter{batcher: lines}) })
	return lines.batches
}
