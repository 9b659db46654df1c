package page

import (
	"bytes"
	"fmt"
	"net/url"
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
	// Namespaces are those that the page can be limited to.
	Namespaces []string
	// Share is the command that opens the page on another machine, without the page.
	Share string
	// Current is the path of the entry of the navigation; empty for the overview.
	Current string
	// Query is the text of the search, or of the filter of the list of Filtered; nil for a page without a list.
	Query    string
	Filtered *view.Kind
	// Events is the address of the stream of the page; empty without a stream.
	Events string
	// LogTitle is the title of the log of the page, and LogFile the address of the whole log; empty without a log.
	LogTitle, LogFile string
	// Prompt is the beginning of a conversation, which the log continues; IsConversation is set for sessions.
	Prompt         string
	IsConversation bool
	// Talk is the session to which the page can send messages; nil without a session.
	Talk *view.Entry
}

// Document is a whole page.
func (s *Shell) Document(content g.Node) g.Node {
	entry := func(key, path, address, title string) g.Node {
		return h.Li(h.A(h.Href(address), g.Attr("data-key", key), g.If(s.Current == path, h.Aria("current", "page")), g.Text(title)))
	}
	keys := map[*view.Kind]string{view.Sequences: "s", view.Sessions: "a", view.Queues: "q", view.Pools: "p", view.Schedules: "c"}
	search := ""
	if s.Current == "search" {
		search = s.Query
	}
	class := ""
	if s.IsConversation && s.LogTitle != "" {
		class = "split"
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
				h.Div(h.Class("top"),
					h.A(h.Class("home"), h.Href(s.with("/", url.Values{})), g.Text("Yardmaster")),
					h.Nav(h.Aria("label", "Views"), h.Ul(
						entry("o", "", s.with("/", url.Values{}), "Overview"),
						g.Map(view.Kinds, func(kind *view.Kind) g.Node { return entry(keys[kind], kind.Path, s.List(kind), kind.Title) }),
						entry("j", "stale", s.Base+"/stale", "Stale Jobs"),
					)),
					h.Form(h.ID("search-form"), h.Method("get"), h.Action(s.Base+"/search"), h.Role("search"), h.Aria("label", "All kinds"),
						h.Input(h.Type("search"), h.ID("search"), h.Name("q"), h.Value(search), h.AutoComplete("off"), h.Aria("label", "Search all kinds"), h.Placeholder("Search  /"), g.Attr("aria-keyshortcuts", "/")),
						g.If(s.Namespace != "", h.Input(h.Type("hidden"), h.Name("ns"), h.Value(s.Namespace)))),
				),
				h.Div(h.Class("place-bar"),
					h.Span(h.Class("place"), g.Text(s.Place)), s.namespaceMenu(),
					g.If(s.Share != "", h.Button(h.Type("button"), h.ID("share"), g.Attr("data-copy", ""), g.Attr("data-text", s.Share), g.Text("Copy link"))),
					h.Button(h.Type("button"), h.ID("show-keys"), g.Text("Keys ?"))),
			),
			h.Div(h.ID("connection"), h.Role("status"), h.Aria("live", "polite")),
			h.Div(h.ID("content"), h.Class(class),
				g.Iff(s.Filtered != nil, func() g.Node {
					return h.Div(h.ID("filters"), s.filterForm(s.List(s.Filtered), "Filter by name, namespace, status or reason", s.Query))
				}),
				h.Main(h.ID("main"), h.TabIndex("-1"), content),
				g.If(s.LogTitle != "", s.log()),
			),
			g.If(s.Events != "", h.Div(h.ID("events"), g.Attr("hx-sse:connect", s.Events), g.Attr("hx-target", "#main"), g.Attr("hx-swap", "innerMorph"),
				g.Attr("hx-config", `{"sse":{"reconnectMaxDelay":5000}}`))),
			h.Dialog(h.ID("dialog"), h.Aria("labelledby", "dialog-title"), h.Div(h.ID("dialog-content"))),
			h.Dialog(h.ID("keys"), h.Aria("labelledby", "keys-title"), h.H2(h.ID("keys-title"), g.Text("Keys")), h.Dl(h.Class("facts"),
				fact("/", g.Text("search")), fact("f", g.Text("filter")), fact("j, k", g.Text("next, previous row")), fact("g, then o s a q p c j", g.Text("open a view")), fact("Esc", g.Text("close")))),
		),
	))
}

// namespaceMenu limits lists to a namespace. It needs no script.
func (s *Shell) namespaceMenu() g.Node {
	if len(s.Namespaces) < 2 && s.Namespace == "" { //nolint:mnd // with one, there is nothing to choose
		return nil
	}
	path, values, title := "/", url.Values{}, "All namespaces"
	if kind := view.KindOf(s.Current); kind != nil {
		path = "/k/" + kind.Path
	}
	if s.Namespace != "" {
		title = s.Namespace
	}
	all := s.Links
	all.Namespace = ""
	return h.Details(h.Class("menu"), h.ID("namespaces"), h.Summary(g.Text(title)), h.Ul(
		h.Li(h.A(h.Href(all.with(path, values)), g.Text("All namespaces"))),
		g.Map(s.Namespaces, func(namespace string) g.Node {
			all.Namespace = namespace
			return h.Li(h.A(h.Href(all.with(path, url.Values{})), g.If(namespace == s.Namespace, h.Aria("current", "true")), g.Text(namespace)))
		})))
}

// log is the log of the page: the script appends its lines as text. Of a session, it is the conversation.
func (s *Shell) log() g.Node {
	return h.Section(h.ID("log"), h.Aria("labelledby", "log-title"),
		h.Div(h.Class("bar"), h.H2(h.ID("log-title"), g.Text(s.LogTitle)),
			h.Label(h.Input(h.Type("checkbox"), h.ID("log-follow"), h.Checked()), g.Text(" Follow")),
			h.Input(h.Type("search"), h.ID("log-filter"), h.AutoComplete("off"), h.Aria("label", "Lines with"), h.Placeholder("Lines with…")),
			linkButton(s.LogFile, "Download", g.Attr("download", "")),
			h.Span(h.Class("note"), g.Text(fmt.Sprintf("The last %d lines, and new ones.", view.MaxLogLines)))),
		g.If(s.Prompt != "", h.Div(h.Class("turn prompt"), h.TabIndex("0"), h.Role("group"), h.Aria("label", "Prompt"), g.Text(s.Prompt))),
		h.Div(h.ID("log-lines"), h.Class(map[bool]string{true: "conversation", false: "lines"}[s.IsConversation]), h.TabIndex("0"), h.Role("log"), h.Aria("label", s.LogTitle)),
		g.Iff(s.Talk != nil, func() g.Node { return s.messageBox(s.Talk) }))
}

// Message is a page, or a dialog, with a message.
func Message(title, text string) g.Node {
	return g.Group{h.H1(h.ID("dialog-title"), g.Text(title)), h.P(g.Text(text))}
}

// WatchProblem explains why the objects of a kind are not shown.
func WatchProblem(state view.WatchState) g.Node {
	switch {
	case state.Problem != "" && state.Lost.IsZero():
		return h.P(h.Class("note denied"), g.Text(state.Problem))
	case !state.Synced:
		return note("Loading…")
	default:
		return nil
	}
}

// Lost explains why what any page shows may be old; nothing for nil.
func Lost(state *view.WatchState) g.Node {
	return g.Iff(state != nil, func() g.Node {
		return h.P(h.Class("note lost"), g.Text("What is shown may be old, since "), age(state.Lost), g.Text(": "), g.Text(state.Problem))
	})
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
