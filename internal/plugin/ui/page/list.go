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
	return g.Group{
		h.H1(h.Class("hidden"), g.Text("Overview")),
		h.Div(h.ID("kinds"), h.Class("cards"), g.Map(o.Kinds, l.kindCard),
			h.Div(h.ID("today"), h.Class("card"), h.Span(h.Class("title"), g.Text("Today")), h.Strong(g.Text(o.Spent)), h.Span(h.Title("by sessions"), g.Text("spent")),
				number(view.LevelGood, o.Completed, "completed"), number(view.LevelProblem, o.Failed, "failed"))),
		section("attention", "Needs you", l.needs(o)),
		h.Div(h.Class("columns"),
			section("series", "Runs", g.If(len(o.Series) == 0, empty(o.Loading, "Nothing has run. Create a sequence, a session or a Schedule.")),
				g.If(len(o.Series) > 0, table("Runs", []string{"Name", "Runs", "Last", "Took", "Next"}, g.Map(o.Series, func(s view.Series) g.Node {
					return h.Tr(h.ID("series-"+rowID(s.Of)), rowHead(l.named(s.Of)), h.Td(l.bars(s.Bars)), h.Td(badge(s.Last.Level, s.Last.Status)), cell(s.Took),
						h.Td(g.If(!s.Next.IsZero(), age(s.Next))))
				})))),
			h.Div(
				section("active", "Running now", g.If(len(o.Active) == 0, empty(o.Loading, "Nothing runs.")),
					g.If(len(o.Active) > 0, table("Running now", []string{"Name", "Progress", "Time"}, g.Map(o.Active, func(a view.Active) g.Node {
						return h.Tr(h.ID("active-"+rowID(a.Entry)), rowHead(l.named(a.Entry)), h.Td(steps(a.Steps), g.Text(" "+a.Detail)), h.Td(elapsed(a.Since, a.Finished)))
					}))), g.If(o.MoreActive > 0, note(fmt.Sprintf("%d more run.", o.MoreActive)))),
				section("loads", "Queues and workers", g.If(len(o.Loads) == 0, empty(o.Loading, "There are no Queues and WorkerPools.")),
					g.If(len(o.Loads) > 0, table("Queues and workers", []string{"Name", "Backlog", "Workers"}, g.Map(o.Loads, func(load view.Load) g.Node {
						return h.Tr(h.ID("load-"+rowID(load.Entry)), rowHead(l.named(load.Entry)), g.Map(load.Facts, func(f view.Fact) g.Node { return h.Td(l.factValue(f)) }))
					})))))),
	}
}

// number counts objects on a card; nothing for 0.
func number(level view.Level, n int, what string) g.Node {
	return g.If(n > 0, h.Span(h.Class("number"), icon(level), g.Text(strconv.Itoa(n)+" "+what)))
}

func (l Links) kindCard(c view.KindCount) g.Node {
	title := h.A(h.Class("title"), h.Href(l.List(c.Kind)), g.Text(c.Kind.Title))
	if c.State.Denied || !c.State.Synced {
		return h.Div(h.Class("card"), title, WatchProblem(c.State))
	}
	problems := "problems"
	if c.Problems == 1 {
		problems = "problem"
	}
	return h.Div(h.Class("card"), title, h.Strong(g.Text(strconv.Itoa(c.Total))),
		number(view.LevelProblem, c.Problems, problems), number(view.LevelActive, c.Active, "active"), number(view.LevelWaiting, c.Waiting, "waiting"), WatchProblem(c.State))
}

func (l Links) needs(o *view.Overview) g.Node {
	if len(o.Attention) == 0 {
		return empty(o.Loading, "Nothing needs attention.")
	}
	return g.Group{
		table("Objects that need attention", []string{"Name", "Status", "Why", "Since", "Next"}, g.Map(o.Attention, func(n view.Need) g.Node {
			return h.Tr(h.ID("attention-"+rowID(n.Entry)), rowHead(l.named(n.Entry)), h.Td(badge(n.Level, n.Status)), wideCell(reason(n.Entry)), h.Td(age(n.Since)),
				h.Td(g.Iff(n.Action != nil, func() g.Node { return l.buttons(n.Entry, []view.Action{*n.Action}) }), g.If(n.Action == nil, linkButton(l.Object(n.Entry, ""), "Open"))))
		})),
		g.If(o.MoreAttention > 0, note(fmt.Sprintf("%d more need attention: see the lists of their kinds.", o.MoreAttention))),
	}
}

// named is a link to an object with its kind, and its namespace if there are several.
func (l Links) named(e *view.Entry) g.Node {
	place := e.Kind.Word
	if l.ShowNamespaces {
		place += " in " + e.Namespace
	}
	return g.Group{l.link(e), h.Span(h.Class("place"), g.Text(" "+place))}
}

func empty(isLoading bool, text string) g.Node {
	if isLoading {
		text = "Loading…"
	}
	return h.P(h.Class("empty"), g.Text(text))
}

func rowID(e *view.Entry) string { return e.Kind.Path + "." + e.Namespace + "." + e.Name }

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
	content := g.Group{
		note(counts),
		table(list.Kind.Title, headers, g.Map(list.Rows, func(row view.Row) g.Node {
			return h.Tr(h.ID("row-"+rowID(row.Entry)), rowHead(l.link(row.Entry)), g.If(list.ShowNamespaces, cell(row.Namespace)), h.Td(badge(row.Level, row.Status)),
				g.Map(row.Facts, func(f view.Fact) g.Node { return h.Td(l.factValue(f)) }), h.Td(age(row.Created)), wideCell(reason(row.Entry)))
		})),
		g.If(list.Pages > 1, h.Nav(h.Class("pager"), h.Aria("label", "Pages"),
			l.pageLink(list, list.Query.Page-1, "Previous"), h.Span(g.Text(fmt.Sprintf("Page %d of %d", list.Query.Page, list.Pages))),
			l.pageLink(list, list.Query.Page+1, "Next"))),
	}
	switch {
	case list.State.Denied || !list.State.Synced:
		content = nil
	case list.All == 0:
		content = g.Group{h.P(h.Class("empty"), g.Text("There are no "+list.Kind.Title+" here. Create one:")), copiedCode("kubectl apply -f " + list.Kind.Word + ".yaml")}
	}
	return g.Group{h.H1(g.Text(list.Kind.Title)), WatchProblem(list.State), content}
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
	return h.A(h.Href(l.with("/k/"+list.Kind.Path, values)), g.Text(text))
}

// Search is the content of the search over all kinds.
func Search(l Links, s *view.Search) g.Node {
	return g.Group{
		h.H1(g.Text("Search")),
		g.If(s.Text == "", h.P(h.Class("empty"), g.Text("Type a name, namespace, status or reason."))),
		g.If(s.Text != "" && len(s.Kinds) == 0, h.P(h.Class("empty"), g.Text(fmt.Sprintf("Nothing matches %q.", s.Text)))),
		g.Map(s.Kinds, func(found view.Found) g.Node {
			all := l.with("/k/"+found.Kind.Path, url.Values{"q": {s.Text}})
			return section("found-"+found.Kind.Path, found.Kind.Title,
				table(found.Kind.Title, []string{"Name", "Namespace", "Status", "Reason", "Since"}, g.Map(found.Rows, func(e *view.Entry) g.Node {
					return h.Tr(h.ID("found-"+rowID(e)), rowHead(l.link(e)), cell(e.Namespace), h.Td(badge(e.Level, e.Status)), wideCell(reason(e)), h.Td(age(e.Since)))
				})), g.If(found.More > 0, h.P(h.A(h.Href(all), g.Text(fmt.Sprintf("%d more", found.More))))))
		}),
	}
}

// filterForm is a field for a text, with which the page is opened again.
func (l Links) filterForm(address, label, text string) g.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action(address), h.Role("search"), h.Aria("label", label),
		h.Input(h.Type("search"), h.ID("filter"), h.Name("q"), h.Value(text), h.AutoComplete("off"), h.Aria("label", label), h.Placeholder(label), g.Attr("aria-keyshortcuts", "f")),
		g.If(l.Namespace != "", h.Input(h.Type("hidden"), h.Name("ns"), h.Value(l.Namespace))),
		h.Button(h.Type("submit"), g.Text("Filter")))
}
