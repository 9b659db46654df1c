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

// DeadLetters is the content of the page of the dead letters of a Queue. The filter is the text that all of them have.
func DeadLetters(l Links, e *view.Entry, letters []view.DeadLetter, filter, problem string) g.Node {
	return g.Group{
		l.partHead(e, "Dead letters of "+e.Name),
		h.P(h.Class("note"), g.Text(fmt.Sprintf("The oldest first, at most %d. They are read from the broker with your permissions, when the page opens.", view.MaxDeadLetters))),
		l.command(view.DeadLetterList(e, filter)),
		filterForm(l.DeadLetters(e), "Filter by error, kind or priority", filter),
		problemNote(problem),
		g.If(problem == "" && len(letters) == 0, h.P(h.Class("note"), g.Text(noLetters(filter)))),
		g.Iff(len(letters) > 0, func() g.Node {
			actions := view.DeadLetterActions(e)
			if filter != "" {
				actions = view.MatchingLetterActions(e, filter)
			}
			return g.Group{l.buttons(e, actions), l.letterForm(e, letters)}
		}),
	}
}

func noLetters(filter string) string {
	if filter != "" {
		return fmt.Sprintf("No dead letter has %q.", filter)
	}
	return "There are no dead letters."
}

// letterForm lists dead letters with boxes, and buttons for the checked ones: a form, so that it needs no script.
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
