package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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

func (l Links) partHead(e *view.Entry, title string) g.Node {
	return g.Group{
		h.Nav(h.Class("path"), h.Aria("label", "Path"), h.A(h.Href(l.List(e.Kind)), g.Text(e.Kind.Title)), g.Text(" / "+e.Namespace+" / "), l.link(e)),
		h.H1(g.Text(title)),
	}
}

// problemNote shows a problem; nothing for an empty text.
func problemNote(text string) g.Node {
	return g.If(text != "", h.P(h.Class("problem"), g.Text(text)))
}

// DeadLetters is the content of the page of the dead letters of a Queue. All of them contain the text of the filter.
func DeadLetters(l Links, e *view.Entry, letters []view.DeadLetter, filter, problem string) g.Node {
	none := "There are no dead letters."
	if filter != "" {
		none = fmt.Sprintf("No dead letter has %q.", filter)
	}
	return g.Group{
		l.partHead(e, "Dead letters of "+e.Name),
		h.P(h.Class("note"), g.Text(fmt.Sprintf("The oldest first, at most %d. They are read from the broker with your permissions, "+
			"when the page opens.", view.MaxDeadLetters))),
		l.command(view.DeadLetterList(e, filter)),
		filterForm(l.DeadLetters(e), "Filter by error, kind or priority", filter),
		problemNote(problem),
		g.If(problem == "" && len(letters) == 0, h.P(h.Class("note"), g.Text(none))),
		g.Iff(len(letters) > 0, func() g.Node {
			actions := view.DeadLetterActions(e)
			if filter != "" {
				actions = view.MatchingLetterActions(e, filter)
			}
			return g.Group{l.buttons(e, actions), l.letterForm(e, letters)}
		}),
	}
}

// letterForm lists dead letters with boxes, and buttons for the checked dead letters: a form, so that it needs no script.
func (l Links) letterForm(e *view.Entry, letters []view.DeadLetter) g.Node {
	address := l.Object(e.Kind, e.Namespace, e.Name) + "/action"
	button := func(id, class, text string) g.Node {
		return h.Button(h.Type("submit"), h.Name("do"), h.Value(id), h.Class(class), g.Text(text))
	}
	return h.Form(h.Method("get"), h.Action(address), g.Attr("hx-get", address), g.Attr("hx-target", "#dialog-content"), g.Attr("hx-swap", "innerHTML"),
		table("Dead letters", []string{"Select", "ID", "Died", "Attempts", "Priority", "Error", "Payload"},
			g.Map(letters, func(letter view.DeadLetter) g.Node { return deadLetter(&letter) })),
		h.Div(h.Class("actions"), button(view.RequeueLetters, "", "Requeue selected"), button(view.DeleteLetters, "destroys", "Delete selected")))
}

func deadLetter(letter *view.DeadLetter) g.Node {
	clean := letter.Clean()
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(clean.Headers)) {
		headers = append(headers, name+": "+strings.Join(clean.Headers[name], ", "))
	}
	id := strconv.FormatUint(letter.ID, 10)
	return h.Tr(h.ID("letter-"+id),
		h.Td(h.Input(h.Type("checkbox"), h.Name("id"), h.Value(id), h.Aria("label", "Select "+id))),
		h.Th(h.Scope("row"), g.Text(id)), h.Td(age(clean.Died)), h.Td(g.Text(strconv.Itoa(clean.Attempts))), h.Td(g.Text(clean.Priority)), h.Td(h.Class("wide"), g.Text(clean.Error)),
		h.Td(h.Details(h.Summary(g.Text(fmt.Sprintf("%d bytes", len(letter.Payload)))),
			preformatted("Payload of "+id, string(clean.Payload)), g.If(len(headers) > 0, preformatted("Headers of "+id, strings.Join(headers, "\n"))))))
}

// Changes is the content of the page of the files that the agent of a session changed.
func Changes(l Links, c *view.Changes) g.Node {
	var files g.Group
	for i := range c.Files {
		f := &c.Files[i]
		files = append(files, h.Details(h.ID("file-"+strconv.Itoa(i+1)), g.Attr("open"),
			h.Summary(h.Code(g.Text(f.Path)), g.Text(fmt.Sprintf(" +%d −%d", f.Added, f.Removed))),
			h.Pre(h.TabIndex("0"), h.Role("group"), h.Aria("label", "Changes of "+f.Path),
				g.Map(f.Lines, func(line view.DiffLine) g.Node { return diffLine(&line) })),
			g.If(f.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more changes of this file: use the command.", f.More))))))
	}
	return g.Group{
		l.partHead(c.Entry, "Changes of "+c.Name),
		h.P(h.Class("note"), g.Text("What the agent's tools wrote into files, from the log of the latest attempt when the page opens. "+
			"Commands that the agent ran may have changed more.")),
		l.command(c.Command),
		problemNote(c.Problem),
		g.If(len(c.Files) == 0, h.P(h.Class("note"), g.Text("The log shows no changed files."))),
		files,
		g.If(c.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more changes of other files: use the command.", c.More)))),
	}
}

func diffLine(line *view.DiffLine) g.Node {
	switch {
	case line.Removed:
		return h.Span(h.Class("removed"), g.Text("- "+line.Text+"\n"))
	case line.Added:
		return h.Span(h.Class("added"), g.Text("+ "+line.Text+"\n"))
	default:
		return g.Text("  " + line.Text + "\n")
	}
}
