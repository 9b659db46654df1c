// Package page writes the HTML of `kubectl yardmaster ui`. All text is escaped: the package never uses gomponents.Raw, and builds the
// address of each link from parts that it escapes.
package page

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Links are the addresses of the pages.
type Links struct {
	// Base is the prefix of all addresses, such as /abc.
	Base string
	// CommandFlags are flags that the shown commands need, such as --context.
	CommandFlags []string
}

// Home is the address of the overview.
func (l Links) Home() string { return l.Base + "/" }

// Static is the address of a file.
func (l Links) Static(name string) string { return l.Base + "/static/" + name }

// Stale is the address of the stale Jobs.
func (l Links) Stale() string { return l.Base + "/stale" }

// List is the address of the list of a kind.
func (l Links) List(kind *view.Kind) string { return l.Base + "/k/" + kind.Path }

// ListPage is the address of a page of a list.
func (l Links) ListPage(kind *view.Kind, query view.Query) string {
	values := url.Values{}
	if query.Text != "" {
		values.Set("q", query.Text)
	}
	if query.Page > 1 {
		values.Set("page", strconv.Itoa(query.Page))
	}
	return join(l.List(kind), values)
}

// Object is the address of the page of an object.
func (l Links) Object(kind *view.Kind, namespace, name string) string {
	return l.List(kind) + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// Logs is the address of the page of an object with a log; for a sequence, the log of a step.
func (l Links) Logs(e *view.Entry, step string) string {
	return join(l.Object(e.Kind, e.Namespace, e.Name), url.Values{"log": {step}}) + "#log"
}

// DeadLetters is the address of the page of a Queue with its dead letters.
func (l Links) DeadLetters(e *view.Entry) string {
	return l.Object(e.Kind, e.Namespace, e.Name) + "/dead"
}

// Workers is the address of the page of a WorkerPool with its workers.
func (l Links) Workers(e *view.Entry) string {
	return l.Object(e.Kind, e.Namespace, e.Name) + "/workers"
}

// Changes is the address of the page of an AgenticSession with the files that its agent changed.
func (l Links) Changes(e *view.Entry) string {
	return l.Object(e.Kind, e.Namespace, e.Name) + "/changes"
}

// Message is the address that accepts messages to an AgenticSession.
func (l Links) Message(e *view.Entry) string {
	return l.Object(e.Kind, e.Namespace, e.Name) + "/message"
}

// Action is the address at which an action is confirmed.
func (l Links) Action(e *view.Entry, action *view.Action) string {
	values := url.Values{"do": {action.ID}}
	if action.Argument != "" {
		values.Set("arg", action.Argument)
	}
	return join(l.Object(e.Kind, e.Namespace, e.Name)+"/action", values)
}

// Explain is the address at which a stale Job is explained.
func (l Links) Explain(namespace, name string) string {
	return join(l.Base+"/explain", url.Values{"namespace": {namespace}, "name": {name}})
}

// Events is the address of the events of a page, whose path begins after Base.
func (l Links) Events(path, query string) string {
	return join(l.Base+"/events", url.Values{"page": {path}, "query": {query}})
}

func join(path string, values url.Values) string {
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// age shows a time as an age, which the script of the page keeps up to date.
func age(t time.Time) g.Node {
	if t.IsZero() {
		return g.Text(view.Unknown)
	}
	text := t.UTC().Format(time.RFC3339)
	return h.Time(g.Attr("datetime", text), g.Attr("data-age", ""), h.Title(text), g.Text(text))
}

// elapsed shows the time between start and end, or until now.
func elapsed(start, end time.Time) g.Node {
	if start.IsZero() {
		return g.Text(view.Unknown)
	}
	if !end.IsZero() {
		return g.Text(max(0, end.Sub(start)).Round(time.Second).String())
	}
	text := start.UTC().Format(time.RFC3339)
	return h.Time(g.Attr("datetime", text), g.Attr("data-since", ""), h.Title("since "+text), g.Text("since "+text))
}

// badge shows a status. Its text has the same meaning as its color.
func badge(level view.Level, text string) g.Node {
	return h.Span(h.Class("badge "+level.String()), g.Text(text))
}

func factValue(f *view.Fact) g.Node {
	switch {
	case !f.Time.IsZero():
		return age(f.Time)
	case f.Level != view.LevelNone:
		return badge(f.Level, f.Value)
	default:
		return g.Text(f.Value)
	}
}

func facts(all []view.Fact) g.Node {
	return h.Dl(h.Class("facts"), g.Map(all, func(f view.Fact) g.Node {
		return h.Div(h.Dt(g.Text(f.Name)), h.Dd(factValue(&f)))
	}))
}

// table is a table that scrolls sideways if it does not fit, and so has to be focusable.
func table(caption string, headers []string, rows ...g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("group"), h.Aria("label", caption),
		h.Table(h.Caption(h.Class("hidden"), g.Text(caption)),
			h.THead(h.Tr(g.Map(headers, func(header string) g.Node { return h.Th(h.Scope("col"), g.Text(header)) }))),
			h.TBody(g.Group(rows))))
}

func section(id, title string, content ...g.Node) g.Node {
	return h.Section(h.ID(id), h.Aria("labelledby", id+"-title"), h.H2(h.ID(id+"-title"), g.Text(title)), g.Group(content))
}

func (l Links) command(args []string) g.Node {
	return h.Div(h.Class("command"), h.Code(g.Text(view.CommandLine(l.CommandFlags, args))), h.Button(h.Type("button"), g.Attr("data-copy", ""), g.Text("Copy")))
}

func preformatted(label, text string) g.Node {
	return h.Pre(h.TabIndex("0"), h.Role("group"), h.Aria("label", label), g.Text(text))
}

// percent formats a percentage for an SVG.
func percent(n float64) string { return strings.TrimSuffix(fmt.Sprintf("%.2f", n), ".00") + "%" }
