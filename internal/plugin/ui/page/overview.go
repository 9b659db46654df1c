package page

import (
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Overview is the content of the first page.
func Overview(l Links, o *view.Overview) g.Node {
	return g.Group{
		h.H1(g.Text("Overview")),
		section("attention", "Needs attention", l.attention(o)),
		section("kinds", "Objects", l.kindCounts(o)),
		g.Iff(len(o.Namespaces) > 1, func() g.Node {
			rows := g.Map(o.Namespaces, func(n view.NamespaceCount) g.Node {
				return h.Tr(h.Th(h.Scope("row"), g.Text(n.Namespace)), cell(n.Total, view.LevelNone), cell(n.Attention, view.LevelProblem))
			})
			return section("namespaces", "Namespaces", table("Objects by namespace", []string{"Namespace", "Total", "Need attention"}, rows))
		}),
		section("today", "Ran today", l.finished(o)),
	}
}

func (l Links) attention(o *view.Overview) g.Node {
	if len(o.Attention) == 0 {
		text := "Nothing needs attention."
		if o.Loading {
			text = "Loading…"
		}
		return h.P(h.Class("note"), g.Text(text))
	}
	return g.Group{
		table("Objects that need attention", []string{"Kind", "Name", "Namespace", "Status", "Reason", "Since"}, g.Map(o.Attention, func(e *view.Entry) g.Node {
			return h.Tr(h.ID("attention-"+rowID(e)),
				h.Td(g.Text(e.Kind.Name)), h.Th(h.Scope("row"), l.link(e)), h.Td(g.Text(e.Namespace)), h.Td(badge(e.Level, e.Status)),
				h.Td(h.Class("wide"), reason(e)), h.Td(age(e.Since)))
		})),
		g.If(o.MoreAttention > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more need attention: see the lists of their kinds.", o.MoreAttention)))),
	}
}

func rowID(e *view.Entry) string { return e.Kind.Path + "." + e.Namespace + "." + e.Name }

func (l Links) link(e *view.Entry) g.Node {
	return h.A(h.Href(l.Object(e.Kind, e.Namespace, e.Name)), g.Text(e.Name))
}

func reason(e *view.Entry) g.Node {
	switch {
	case e.Reason == "":
		return g.Text(e.Message)
	case e.Message == "":
		return g.Text(e.Reason)
	default:
		return g.Group{h.Strong(g.Text(e.Reason)), g.Text(": " + e.Message)}
	}
}

func (l Links) kindCounts(o *view.Overview) g.Node {
	return table("Objects by kind", []string{"Kind", "Total", "Active", "Waiting", "Problems", "Need attention"}, g.Map(o.Kinds, func(c view.KindCount) g.Node {
		name := h.Th(h.Scope("row"), h.A(h.Href(l.List(c.Kind)), g.Text(c.Kind.Title)))
		if c.State.Denied || c.State.Problem == "" && !c.State.Synced {
			return h.Tr(name, h.Td(h.ColSpan("5"), watchProblem(c.State)))
		}
		return h.Tr(name, cell(c.Total, view.LevelNone), cell(c.Active, view.LevelActive), cell(c.Waiting, view.LevelWaiting),
			cell(c.Problems, view.LevelProblem), h.Td(g.Text(strconv.Itoa(c.Attention)), watchProblem(c.State)))
	}))
}

// cell shows a number, with the color of its level unless it is 0.
func cell(n int, level view.Level) g.Node {
	if n == 0 || level == view.LevelNone {
		return h.Td(g.Text(strconv.Itoa(n)))
	}
	return h.Td(badge(level, strconv.Itoa(n)))
}

func (l Links) finished(o *view.Overview) g.Node {
	return g.Group{
		h.P(g.Text(fmt.Sprintf("%d completed, %d failed or stopped.", o.Completed, o.Failed))),
		g.Iff(len(o.Finished) > 0, func() g.Node {
			return table("The latest runs that ended today", []string{"Kind", "Name", "Namespace", "Status", "Ended"}, g.Map(o.Finished, func(e *view.Entry) g.Node {
				return h.Tr(h.ID("finished-"+rowID(e)),
					h.Td(g.Text(e.Kind.Name)), h.Th(h.Scope("row"), l.link(e)), h.Td(g.Text(e.Namespace)), h.Td(badge(e.Level, e.Status)), h.Td(age(e.Finished)))
			}))
		}),
	}
}
