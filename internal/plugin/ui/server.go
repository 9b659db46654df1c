package ui

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/watch"
)

//go:embed static
var static embed.FS

// Config contains the dependencies of a server.
type Config struct {
	Store *watch.Store
	// Run runs a command of the plugin and returns its exit code.
	Run func(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int
	Now func() time.Time
	// Place describes the cluster and namespaces of the pages.
	Place string
	// History is the source of charts before the start of the command; nil without Prometheus.
	History *History
	// CommandFlags are flags that the shown commands need, such as --context.
	CommandFlags []string
	// ScopeFlags are flags of the command ui that select the objects, and Open is the path of its first page; empty for the overview.
	ScopeFlags []string
	Open       string
}

// Server serves the pages.
type Server struct {
	Config

	guard   *guard
	links   page.Links
	streams chan struct{}
	stale   staleReports
	pasts   pasts
}

// The limits of peers.
const (
	maxConnections = 128
	maxStreams     = 32
	maxHeaderBytes = 16 << 10
	maxFormBytes   = 4 << 10
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	writeTimeout   = 10 * time.Second
	stopTimeout    = time.Second
)

// NewServer returns a server for a listener with this address.
func NewServer(config Config, address net.Addr) *Server {
	guard := newGuard(address.String())
	return &Server{Config: config, guard: guard, links: page.Links{Base: guard.base, CommandFlags: config.CommandFlags}, streams: make(chan struct{}, maxStreams)}
}

// URL is the address that the user opens. It works once.
func (s *Server) URL() string {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return s.guard.origin() + s.guard.base + "/login?token=" + s.guard.token
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(stopping) // what has not ended by then ends with the process
	})
	defer stopped()
	if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range securityHeaders {
		w.Header().Set(name, value)
	}
	if status, reason := s.guard.check(r); reason != "" {
		http.Error(w, "Refused: "+reason+".", status)
		return
	}
	switch rest := strings.TrimPrefix(r.URL.Path, s.guard.base); {
	case rest == "/login":
		s.serveLogin(w, r)
	case strings.HasPrefix(rest, "/static/"):
		s.serveStatic(w, strings.TrimPrefix(rest, "/static/"))
	case rest == "/events":
		s.serveEvents(w, r)
	case rest == "/explain":
		s.serveExplanation(w, r)
	default:
		// An object may have the name of one of these.
		object, part := path.Split(rest)
		object = strings.TrimSuffix(object, "/")
		isPart := parseLocation(object, nil) != nil && parseLocation(rest, nil) == nil
		switch {
		case part == "action" && isPart:
			s.serveAction(w, r, object)
		case part == "log" && isPart:
			s.serveLog(w, r, object)
		case part == "message" && isPart:
			s.serveMessage(w, r, object)
		default:
			s.servePage(w, r, rest)
		}
	}
}

// serveLogin exchanges the token. It responds with a page instead of a redirect: a browser does not send the new cookie if a page of
// another site, such as a terminal in the browser, started the redirected navigation.
func (s *Server) serveLogin(w http.ResponseWriter, r *http.Request) {
	cookie := s.guard.exchange(r.URL.Query().Get("token"))
	if cookie == nil && !s.guard.hasCookie(r) {
		http.Error(w, "Refused: this address works once. Start kubectl yardmaster ui again for another one.", http.StatusForbidden)
		return
	}
	if cookie != nil {
		http.SetCookie(w, cookie)
	}
	first := s.links.Base + cmp.Or(s.Open, "/")
	s.write(w, http.StatusOK, h.Doctype(h.HTML(h.Lang("en"), h.Head(h.Meta(h.Charset("utf-8")), h.TitleEl(g.Text("Yardmaster")), h.Link(h.Rel("icon"), h.Href(s.links.Static("icon.svg"))),
		h.Meta(g.Attr("http-equiv", "refresh"), h.Content("0;url="+first))), h.Body(h.A(h.Href(first), g.Text("Continue"))))))
}

// staticFiles are the static files of pages, each made of one or more files. htmx and its extension are one file: htmx starts as soon
// as its script has run, and does not open the stream if the extension is loaded only afterwards.
var staticFiles = map[string][]string{
	"htmx.js": {"static/htmx/htmx.min.js", "static/htmx/hx-sse.min.js"}, "ui.js": {"static/ui.js"}, "ui.css": {"static/ui.css"}, "icon.svg": {"static/icon.svg"},
}

func (*Server) serveStatic(w http.ResponseWriter, name string) {
	var content []byte
	for _, file := range staticFiles[name] {
		part, err := static.ReadFile(file)
		if err != nil {
			http.Error(w, "The file cannot be read.", http.StatusInternalServerError)
			return
		}
		content = append(append(content, part...), '\n')
	}
	if len(content) == 0 {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "private, max-age=3600") // the next process has other addresses
	_, _ = w.Write(content)                                  // the client has gone
}

func (*Server) write(w http.ResponseWriter, status int, node g.Node) {
	html, err := page.Render(node)
	if err != nil {
		http.Error(w, "The page cannot be written.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html) //nolint:gosec // package page escapes all text; an error means that the client has gone
}

// writeDialog sends the content of a dialog to the script of a page, and otherwise a page.
func (s *Server) writeDialog(w http.ResponseWriter, r *http.Request, status int, title string, node g.Node) {
	if r.Header.Get("HX-Request") != "" {
		s.write(w, http.StatusOK, node) // htmx shows problems too
		return
	}
	s.write(w, status, (&page.Shell{Links: s.links, Title: title, Place: s.Place}).Document(node))
}

func (s *Server) writeMessage(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	s.writeDialog(w, r, status, title, page.Message(title, text))
}

func (s *Server) entry(place *location) (*view.Entry, view.WatchState) {
	return s.Store.Get(place.kind, place.namespace, place.name)
}
