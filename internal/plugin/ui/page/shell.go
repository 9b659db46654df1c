package page

import (
	"bytes"
	"fmt"
	"unicode"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Shell is the common part of all pages.
type Shell struct {
	Links

	Title string
	// Place describes the cluster and namespaces of the page.
	Place string
	// Current is the path of the entry of the navigation; empty for the overview.
	Current string
	// Events is the address of the stream of the page; empty without a stream.
	Events string
	// LogTitle is the title of the log of the page, and LogFile the address of the whole log; empty without a log.
	LogTitle, LogFile string
	// Talk is the session to which the page can send messages; nil without a session.
	Talk *view.Entry
}

// Document is a whole page.
func (s *Shell) Document(content g.Node) g.Node {
	entry := func(path, address, title string) g.Node {
		return h.Li(h.A(h.Href(address), g.If(s.Current == path, h.Aria("current", "page")), g.Text(title)))
	}
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")), h.Meta(h.Name("referrer"), h.Content("no-referrer")),
			h.Meta(h.Name("htmx-config"), h.Content(`{"includeIndicatorCSS":false,"history":false,"prefix":"","noSwap":[204,304],"defaultSettleDelay":0}`)),
			h.TitleEl(g.Text(s.Title+" · Yardmaster")),
			h.Link(h.Rel("icon"), h.Href(s.Static("icon.svg")), h.Type("image/svg+xml")),
			h.Link(h.Rel("stylesheet"), h.Href(s.Static("ui.css"))),
			h.Script(h.Src(s.Static("htmx.js")), h.Defer()), h.Script(h.Src(s.Static("ui.js")), h.Defer()),
		),
		h.Body(
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to the content")),
			h.Header(
				h.A(h.Class("home"), h.Href(s.Base+"/"), g.Text("Yardmaster")),
				h.Nav(h.Aria("label", "Views"), h.Ul(
					entry("", s.Base+"/", "Overview"),
					g.Map(view.Kinds, func(kind *view.Kind) g.Node { return entry(kind.Path, s.List(kind), kind.Title) }),
					entry("stale", s.Base+"/stale", "Stale Jobs"),
				)),
				h.P(h.Class("place"), g.Text(s.Place)),
			),
			h.Div(h.ID("connection"), h.Role("status"), h.Aria("live", "polite")),
			h.Main(h.ID("main"), h.TabIndex("-1"), content),
			// The script appends the log lines of the stream as text.
			g.If(s.LogTitle != "", h.Section(h.ID("log"), h.Aria("labelledby", "log-title"),
				h.Div(h.Class("bar"), h.H2(h.ID("log-title"), g.Text(s.LogTitle)),
					h.Label(h.Input(h.Type("checkbox"), h.ID("log-follow"), h.Checked()), g.Text(" Follow")),
					h.Label(h.For("log-filter"), g.Text("Lines with")), h.Input(h.Type("search"), h.ID("log-filter"), h.AutoComplete("off")),
					linkButton(s.LogFile, "Download the whole log", g.Attr("download", ""))),
				note(fmt.Sprintf("The last %d lines, and new ones.", view.MaxLogLines)),
				h.Pre(h.ID("log-lines"), h.TabIndex("0"), h.Role("log"), h.Aria("label", "Log")))),
			g.Iff(s.Talk != nil, func() g.Node { return s.messageBox(s.Talk) }),
			g.If(s.Events != "", h.Div(h.ID("events"), g.Attr("hx-sse:connect", s.Events), g.Attr("hx-target", "#main"), g.Attr("hx-swap", "innerMorph"),
				g.Attr("hx-config", `{"sse":{"reconnectMaxDelay":5000}}`))),
			h.Dialog(h.ID("dialog"), h.Aria("labelledby", "dialog-title"), h.Div(h.ID("dialog-content"))),
		),
	))
}

// Message is a page, or a dialog, with a message.
func Message(title, text string) g.Node {
	return g.Group{h.H1(h.ID("dialog-title"), g.Text(title)), h.P(g.Text(text))}
}

// WatchProblem explains why the objects of a kind are not shown, or may be old.
func WatchProblem(state view.WatchState) g.Node {
	switch {
	case state.Problem == "" && !state.Synced:
		return note("Loading…")
	case state.Problem == "":
		return nil
	case state.Denied || state.Lost.IsZero():
		return h.P(h.Class("note denied"), g.Text(state.Problem))
	default:
		return h.P(h.Class("note lost"), g.Text("What is shown may be old, since "), age(state.Lost), g.Text(": "), g.Text(state.Problem))
	}
}

// Render returns the HTML of a page, without control and format characters, which could hide or reorder text, or end an event of a
// stream.
func Render(node g.Node) ([]byte, error) {
	var out bytes.Buffer
	if err := node.Render(&out); err != nil {
		return nil, err
	}
	return bytes.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return unicode.ReplacementChar
		}
	}, out.Bytes()), nil
}
