package page

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// objectHead is the top of the page of an object: its name and state, the problems, and the actions.
func (l Links) objectHead(e *view.Entry, actions []view.Action, problems []render.Problem) g.Node {
	return g.Group{
		h.Nav(h.Class("path"), h.Aria("label", "Path"), h.A(h.Href(l.List(e.Kind)), g.Text(e.Kind.Title)), g.Text(" / "+e.Namespace)),
		h.H1(g.Text(e.Name), g.Text(" "), badge(e.Level, e.Status)),
		g.Map(problems, func(p render.Problem) g.Node {
			return h.P(h.Class("problem"), h.Strong(g.Text(p.Reason)), g.Text(": "+p.Message+" ("), age(p.Since), g.Text(")"))
		}),
		g.Iff(len(problems) == 0 && e.NeedsAttention, func() g.Node { return h.P(h.Class("problem"), reason(e)) }),
		l.buttons(e, actions),
	}
}

// buttons are links to the confirmation of each action: a page without a script, and otherwise a dialog.
func (l Links) buttons(e *view.Entry, actions []view.Action) g.Node {
	if len(actions) == 0 {
		return nil
	}
	return h.Div(h.Class("actions"), g.Map(actions, func(a view.Action) g.Node { return l.button(e, &a) }))
}

func (l Links) button(e *view.Entry, action *view.Action) g.Node {
	class := "button"
	if action.Destroys {
		class += " destroys"
	}
	return dialogLink(l.Action(e, action), class, action.Label)
}

// dialogLink is a link whose page opens as a dialog.
func dialogLink(address, class, text string) g.Node {
	return h.A(h.Class(class), h.Href(address), g.Attr("hx-get", address), g.Attr("hx-target", "#dialog-content"), g.Attr("hx-swap", "innerHTML"), g.Attr("data-dialog", ""), g.Text(text))
}

func conditions(all []view.Condition) g.Node {
	if len(all) == 0 {
		return nil
	}
	return section("conditions", "Conditions", table("Conditions", []string{"Type", "Status", "Reason", "Message", "For"}, g.Map(all, func(c view.Condition) g.Node {
		return h.Tr(h.Th(h.Scope("row"), g.Text(c.Type)), h.Td(g.Text(c.Status)), h.Td(g.Text(c.Reason)), h.Td(h.Class("wide"), g.Text(c.Message)), h.Td(age(c.Since)))
	})))
}

// chart draws lines as an SVG, with a text for people who cannot see it.
func chart(c *view.Chart) g.Node {
	if len(c.Lines) == 0 {
		return h.P(h.Class("note"), g.Text(c.Title+": the page collects values while it is open."))
	}
	svg := []g.Node{h.Class("chart"), g.Attr("viewBox", "0 0 600 120"), g.Attr("preserveAspectRatio", "none"), h.Role("img"), h.Aria("label", c.Text)}
	for i, line := range c.Lines {
		svg = append(svg, g.El("path", h.Class(lineClass(i)), g.Attr("d", line.Path), g.Attr("vector-effect", "non-scaling-stroke")))
	}
	var legend []g.Node
	for i, line := range c.Lines {
		legend = append(legend, h.Li(h.Class(lineClass(i)), g.Text(line.Name+" "), h.Strong(g.Text(line.Last))))
	}
	return h.Figure(
		h.FigCaption(g.Text(c.Title), h.Span(h.Class("note"), g.Text(" largest "+c.Max+", since "+c.Since()+" UTC"))),
		h.SVG(svg...), h.Ul(h.Class("legend"), g.Group(legend)))
}

func past(p *view.Past) g.Node {
	switch {
	case p.Window == 0:
		return nil
	case p.Problem != "":
		return h.P(h.Class("problem"), g.Text("The history cannot be read from Prometheus: "+p.Problem))
	case p.Loading:
		return h.P(h.Class("note"), g.Text("Reading the history from Prometheus…"))
	case len(p.Samples) == 0:
		return h.P(h.Class("note"), g.Text("Prometheus has no history of this object."))
	default:
		return h.P(h.Class("note"), g.Text("History of the last "+p.Window.String()+" from Prometheus."))
	}
}

func lineClass(i int) string { return [...]string{"line-a", "line-b", "line-c"}[i%3] }

func bar(class, label string, offset, length float64) g.Node {
	return h.SVG(h.Class("bar-chart"), g.Attr("width", "100%"), g.Attr("height", "14"), h.Role("img"), h.Aria("label", label),
		g.El("rect", h.Class("track"), g.Attr("x", "0"), g.Attr("y", "5"), g.Attr("width", "100%"), g.Attr("height", "4")),
		g.If(length > 0, g.El("rect", h.Class(class), g.Attr("x", percent(offset)), g.Attr("y", "1"), g.Attr("width", percent(length)), g.Attr("height", "12"), g.Attr("rx", "2"))))
}

// Missing is the page of an object that does not exist, or cannot be read.
func Missing(kind *view.Kind, namespace, name string, state view.WatchState) g.Node {
	text := "It does not exist, or was deleted."
	if !state.Synced || state.Problem != "" {
		text = ""
	}
	return g.Group{h.H1(g.Text(kind.Name + " " + namespace + "/" + name)), watchProblem(state), g.If(text != "", h.P(h.Class("note"), g.Text(text)))}
}
