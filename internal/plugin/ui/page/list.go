package page

import (
	"fmt"
	"net/url"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Overview is the content of the first page.
func Overview(l Links, o *view.Overview) g.Node {
	attention := g.Group{note("Nothing needs attention.")}
	switch {
	case len(o.Attention) > 0:
		attention = g.Group{
			table("Objects that need attention", []string{"Kind", "Name", "Namespace", "Status", "Reason", "Since"}, g.Map(o.Attention, func(e *view.Entry) g.Node {
				return h.Tr(h.ID("attention-"+rowID(e)), cell(e.Kind.Name), rowHead(l.link(e)), cell(e.Namespace), h.Td(badge(e.Level, e.Status)),
					wideCell(reason(e)), h.Td(age(e.Since)))
			})),
			g.If(o.MoreAttention > 0, note(fmt.Sprintf("%d more need attention: see the lists of their kinds.", o.MoreAttention))),
		}
	case o.Loading:
		attention = g.Group{note("Loading…")}
	}
	return g.Group{
		h.H1(g.Text("Overview")),
		section("attention", "Needs attention", attention),
		section("kinds", "Objects", table("Objects by kind", []string{"Kind", "Total", "Active", "Waiting", "Problems", "Need attention"}, g.Map(o.Kinds, func(c view.KindCount) g.Node {
			name := rowHead(h.A(h.Href(l.List(c.Kind)), g.Text(c.Kind.Title)))
			if c.State.Denied || c.State.Problem == "" && !c.State.Synced {
				return h.Tr(name, h.Td(h.ColSpan("5"), WatchProblem(c.State)))
			}
			return h.Tr(name, countCell(c.Total, view.LevelNone), countCell(c.Active, view.LevelActive), countCell(c.Waiting, view.LevelWaiting),
				countCell(c.Problems, view.LevelProblem), h.Td(g.Text(strconv.Itoa(c.Attention)), WatchProblem(c.State)))
		}))),
		g.If(len(o.Namespaces) > 1, section("namespaces", "Namespaces",
			table("Objects by namespace", []string{"Namespace", "Total", "Need attention"}, g.Map(o.Namespaces, func(n view.NamespaceCount) g.Node {
				return h.Tr(rowHead(g.Text(n.Namespace)), countCell(n.Total, view.LevelNone), countCell(n.Attention, view.LevelProblem))
			})))),
		section("today", "Ran today",
			h.P(g.Text(fmt.Sprintf("%d completed, %d failed or stopped.", o.Completed, o.Failed))),
			g.If(len(o.Finished) > 0, table("The latest runs that ended today", []string{"Kind", "Name", "Namespace", "Status", "Ended"}, g.Map(o.Finished, func(e *view.Entry) g.Node {
				return h.Tr(h.ID("finished-"+rowID(e)), cell(e.Kind.Name), rowHead(l.link(e)), cell(e.Namespace), h.Td(badge(e.Level, e.Status)), h.Td(age(e.Finished)))
			})))),
	}
}

func rowID(e *view.Entry) string { return e.Kind.Path + "." + e.Namespace + "." + e.Name }

// countCell shows a number, with the color of its level unless it is 0.
func countCell(n int, level view.Level) g.Node {
	if n == 0 || level == view.LevelNone {
		return cell(strconv.Itoa(n))
	}
	return h.Td(badge(level, strconv.Itoa(n)))
}

// List is the content of the list of a kind.
func List(l Links, list *view.List) g.Node {
	counts := fmt.Sprintf("%d in total. What needs attention comes first.", list.All)
	if list.Query.Text != "" {
		counts = fmt.Sprintf("%d of %d match %q.", list.Total, list.All, list.Query.Text)
	}
	headers := []string{"Name"}
	if list.ShowNamespaces {
		headers = append(headers, "Namespace")
	}
	headers = append(append(append(headers, "Status"), list.Headers...), "Age", "Reason")
	return g.Group{
		h.H1(g.Text(list.Kind.Title)),
		WatchProblem(list.State),
		g.If(!list.State.Denied, g.Group{
			filterForm(l.List(list.Kind), "Filter by name, namespace, status or reason", list.Query.Text),
			note(counts),
			table(list.Kind.Title, headers, g.Map(list.Rows, func(row view.Row) g.Node {
				return h.Tr(h.ID("row-"+rowID(row.Entry)), rowHead(l.link(row.Entry)), g.If(list.ShowNamespaces, cell(row.Namespace)), h.Td(badge(row.Level, row.Status)),
					g.Map(row.Facts, func(f view.Fact) g.Node { return h.Td(factValue(f)) }), h.Td(age(row.Created)), wideCell(reason(row.Entry)))
			})),
			g.If(list.Pages > 1, h.Nav(h.Class("pager"), h.Aria("label", "Pages"),
				l.pageLink(list, list.Query.Page-1, "Previous"), h.Span(g.Text(fmt.Sprintf("Page %d of %d", list.Query.Page, list.Pages))),
				l.pageLink(list, list.Query.Page+1, "Next"))),
		}),
	}
}

// pageLink is a link to a page of a list; nothing for a page that does not exist.
func (l Links) pageLink(list *view.List, page int, text string) g.Node {
	if page < 1 || page > list.Pages {
		return nil
	}
	values := url.Values{}
	if list.Query.Text != "" {
		values.Set("q", list.Query.Text)
	}
	if page > 1 {
		values.Set("page", strconv.Itoa(page))
	}
	address := url.URL{Path: l.List(list.Kind), RawQuery: values.Encode()}
	return h.A(h.Href(address.String()), g.Text(text))
}

// filterForm is a field for a text, with which the page is opened again.
func filterForm(address, label, text string) g.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action(address), h.Role("search"),
		h.Label(h.For("filter"), g.Text(label)),
		h.Input(h.Type("search"), h.ID("filter"), h.Name("q"), h.Value(text), h.AutoComplete("off"), g.Attr("aria-keyshortcuts", "/")),
		h.Button(h.Type("submit"), g.Text("Filter")))
}
