package page

import (
	"fmt"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// List is the content of the list of a kind.
func List(l Links, list *view.List) g.Node {
	counts := fmt.Sprintf("%d in total. What needs attention comes first.", list.All)
	if list.Query.Text != "" {
		counts = fmt.Sprintf("%d of %d match %q.", list.Total, list.All, list.Query.Text)
	}
	return g.Group{
		h.H1(g.Text(list.Kind.Title)),
		watchProblem(list.State),
		g.If(!list.State.Denied, g.Group{
			filterForm(l.List(list.Kind), "Filter by name, namespace, status or reason", list.Query.Text),
			h.P(h.Class("note"), g.Text(counts)),
			table(list.Kind.Title, headers(list), g.Map(list.Rows, func(row view.Row) g.Node { return l.row(list, &row) })),
			l.pager(list),
		}),
	}
}

// filterForm is a field for a text, with which the page is opened again.
func filterForm(address, label, text string) g.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action(address), h.Role("search"),
		h.Label(h.For("filter"), g.Text(label)),
		h.Input(h.Type("search"), h.ID("filter"), h.Name("q"), h.Value(text), h.AutoComplete("off"), g.Attr("aria-keyshortcuts", "/")),
		h.Button(h.Type("submit"), g.Text("Filter")))
}

func headers(list *view.List) []string {
	columns := []string{"Name"}
	if list.ShowNamespaces {
		columns = append(columns, "Namespace")
	}
	return append(append(append(columns, "Status"), list.Headers...), "Age", "Reason")
}

func (l Links) row(list *view.List, row *view.Row) g.Node {
	return h.Tr(h.ID("row-"+rowID(row.Entry)),
		h.Th(h.Scope("row"), l.link(row.Entry)),
		g.If(list.ShowNamespaces, h.Td(g.Text(row.Namespace))),
		h.Td(badge(row.Level, row.Status)),
		g.Map(row.Facts, func(f view.Fact) g.Node { return h.Td(factValue(&f)) }),
		h.Td(age(row.Begin())), h.Td(h.Class("wide"), reason(row.Entry)))
}

func (l Links) pager(list *view.List) g.Node {
	if list.Pages <= 1 {
		return nil
	}
	to := func(page int, text string) g.Node {
		if page < 1 || page > list.Pages {
			return nil
		}
		return h.A(h.Href(l.ListPage(list.Kind, view.Query{Text: list.Query.Text, Page: page})), g.Text(text))
	}
	return h.Nav(h.Class("pager"), h.Aria("label", "Pages"),
		to(list.Query.Page-1, "Previous"), h.Span(g.Text(fmt.Sprintf("Page %d of %d", list.Query.Page, list.Pages))), to(list.Query.Page+1, "Next"))
}
