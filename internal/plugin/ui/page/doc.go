// Package page writes the HTML of `kubectl yardmaster ui`. All text is escaped: the package never uses gomponents.Raw, and builds the
// address of each link from parts that it escapes.
package page

import (
	"net/url"
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
	// Namespace is the only namespace of lists; empty for all of the scope. ShowNamespaces is set if names need their namespace.
	Namespace      string
	ShowNamespaces bool
}

// Static is the address of a file.
func (l Links) Static(name string) string { return l.Base + "/static/" + name }

// with is an address with values and the namespace.
func (l Links) with(path string, values url.Values) string {
	if l.Namespace != "" {
		values.Set("ns", l.Namespace)
	}
	return (&url.URL{Path: l.Base + path, RawQuery: values.Encode()}).String()
}

// List is the address of the list of a kind.
func (l Links) List(kind *view.Kind) string { return l.with("/k/"+kind.Path, url.Values{}) }

// Object is the address of the page of an object, or of a part of it, such as /dead.
func (l Links) Object(e *view.Entry, part string) string {
	return l.object(e.Kind, e.Namespace, e.Name) + part
}

func (l Links) object(kind *view.Kind, namespace, name string) string {
	return l.Base + "/k/" + kind.Path + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// Logs is the address of the page of an object with a log; for a sequence, the log of a step.
func (l Links) Logs(e *view.Entry, step string) string {
	return l.Object(e, "?") + url.Values{"log": {step}}.Encode() + "#log"
}

// LogFile is the address of a whole log as a file.
func (l Links) LogFile(kind *view.Kind, namespace, name, step string) string {
	return l.object(kind, namespace, name) + "/log?" + url.Values{"step": {step}}.Encode()
}

// Action is the address at which an action is confirmed.
func (l Links) Action(e *view.Entry, action *view.Action) string {
	values := url.Values{"do": {action.ID}}
	if action.Argument != "" {
		values.Set("arg", action.Argument)
	}
	return l.Object(e, "/action?") + values.Encode()
}

// Events is the address of the events of a page, whose path begins after Base.
func (l Links) Events(path, query string) string {
	return l.Base + "/events?" + url.Values{"page": {path}, "query": {query}}.Encode()
}

// link is a link to the page of an object.
func (l Links) link(e *view.Entry) g.Node { return h.A(h.Href(l.Object(e, "")), g.Text(e.Name)) }

func (l Links) command(args []string) g.Node {
	return copiedCode(view.CommandLine(l.CommandFlags, args))
}

func copiedCode(text string) g.Node {
	return h.Div(h.Class("command"), h.Code(g.Text(text)), h.Button(h.Type("button"), g.Attr("data-copy", ""), g.Text("Copy")))
}

// buttons are links to the confirmation of each action: a page without a script, and otherwise a dialog.
func (l Links) buttons(e *view.Entry, actions []view.Action) g.Node {
	return g.Map(actions, func(action view.Action) g.Node {
		class := "button"
		switch {
		case action.Destroys:
			class += " destroys"
		case action.Helps:
			class += " primary"
		}
		return dialogLink(l.Action(e, &action), class, action.Label)
	})
}

// dialogLink is a link whose page opens as a dialog.
func dialogLink(address, class, text string) g.Node {
	return h.A(h.Class(class), h.Href(address), g.Attr("hx-get", address), g.Attr("hx-target", "#dialog-content"), g.Attr("hx-swap", "innerHTML"),
		g.Attr("data-dialog", ""), g.Text(text))
}

func linkButton(address, text string, attributes ...g.Node) g.Node {
	return h.A(h.Class("button"), h.Href(address), g.Text(text), g.Group(attributes))
}

// form is a form whose response replaces the content of the target; without a script, it is a page.
func form(method, address, target string, content ...g.Node) g.Node {
	return h.Form(h.Method(method), h.Action(address), g.Attr("hx-"+method, address), g.Attr("hx-target", target), g.Attr("hx-swap", "innerHTML"), g.Group(content))
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

// reason shows why an object needs attention.
func reason(e *view.Entry) g.Node {
	switch {
	case e.Reason == "" || e.Reason == e.Status:
		return g.Text(e.Message)
	case e.Message == "":
		return g.Text(e.Reason)
	default:
		return g.Group{h.Strong(g.Text(e.Reason)), g.Text(": " + e.Message)}
	}
}

func (l Links) factValue(f view.Fact) g.Node {
	switch {
	case len(f.Bars) > 0:
		return l.bars(f.Bars)
	case !f.Time.IsZero():
		return age(f.Time)
	case !f.Since.IsZero():
		return elapsed(f.Since, time.Time{})
	case len(f.Steps) > 0 || f.Line != "":
		return g.Group{steps(f.Steps), line(f.Name, f.Line), g.Text(" " + f.Value)}
	case f.Level != view.LevelNone:
		return badge(f.Level, f.Value)
	default:
		return g.Text(f.Value)
	}
}

func note(text string) g.Node { return h.P(h.Class("note"), g.Text(text)) }

// problemNote shows a problem; nothing for an empty text.
func problemNote(text string) g.Node {
	return g.If(text != "", h.P(h.Class("problem"), g.Text(text)))
}

// table is a table that scrolls sideways if it does not fit, and so has to be focusable.
func table(caption string, headers []string, rows ...g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("group"), h.Aria("label", caption),
		h.Table(h.Caption(h.Class("hidden"), g.Text(caption)),
			h.THead(h.Tr(g.Map(headers, func(header string) g.Node { return h.Th(h.Scope("col"), g.Text(header)) }))),
			h.TBody(g.Group(rows))))
}

func rowHead(content ...g.Node) g.Node { return h.Th(h.Scope("row"), g.Group(content)) }

func cell(text string) g.Node { return h.Td(g.Text(text)) }

func wideCell(content ...g.Node) g.Node { return h.Td(h.Class("wide"), g.Group(content)) }

func section(id, title string, content ...g.Node) g.Node {
	return h.Section(h.ID(id), h.Aria("labelledby", id+"-title"), h.H2(h.ID(id+"-title"), g.Text(title)), g.Group(content))
}

func preformatted(label, text string) g.Node {
	return h.Pre(h.TabIndex("0"), h.Role("group"), h.Aria("label", label), g.Text(text))
}
