package page

import (
	"fmt"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Workers is the content of the page of the workers of a WorkerPool.
func Workers(l Links, w *view.Workers) g.Node {
	return g.Group{
		l.partHead(w.Entry, "Workers of "+w.Name),
		h.P(h.Class("note"), g.Text("They are read with your permissions, when the page opens.")),
		l.command(w.Command),
		problemNote(w.Problem),
		g.If(w.Problem == "" && len(w.Workers) == 0, h.P(h.Class("note"), g.Text("There are no workers."))),
		g.Iff(len(w.Workers) > 0, func() g.Node {
			return table("Workers", []string{"Name", "State", "Since", "Revision", "Node", "Age", "Actions"}, g.Map(w.Workers, func(worker view.Worker) g.Node {
				return l.worker(w.Entry, &worker)
			}))
		}),
		g.If(w.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more workers: use the command.", w.More)))),
	}
}

func (l Links) worker(e *view.Entry, w *view.Worker) g.Node {
	return h.Tr(h.ID("worker-"+w.Name),
		h.Th(h.Scope("row"), g.Text(w.Name)), h.Td(badge(w.Level, w.State)), h.Td(age(w.Since)), h.Td(g.Text(w.Revision)), h.Td(g.Text(w.Node)), h.Td(age(w.Created)),
		h.Td(h.Class("row-actions"), g.Iff(w.Drain != nil, func() g.Node {
			return dialogLink(l.Action(e, w.Drain), "button destroys", "Drain")
		})))
}

// partHead is the top of a page about a part of an object.
func (l Links) partHead(e *view.Entry, title string) g.Node {
	return g.Group{
		h.Nav(h.Class("path"), h.Aria("label", "Path"), h.A(h.Href(l.List(e.Kind)), g.Text(e.Kind.Title)), g.Text(" / "+e.Namespace+" / "), l.link(e)),
		h.H1(g.Text(title)),
	}
}

// problemNote says why something cannot be shown. An empty text is no problem.
func problemNote(text string) g.Node {
	return g.If(text != "", h.P(h.Class("problem"), g.Text(text)))
}
