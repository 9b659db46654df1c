package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Workers is the content of the page of the workers of a WorkerPool.
func Workers(l Links, w *view.Workers) g.Node {
	return g.Group{
		l.objectHead(w.Entry, "/workers", nil, nil),
		note("They are read with your permissions, when the page opens."),
		l.command(w.Command),
		problemNote(w.Problem),
		g.If(w.Problem == "" && len(w.Workers) == 0, empty(false, "There are no workers.")),
		g.If(len(w.Workers) > 0, table("Workers", []string{"Name", "State", "Since", "Revision", "Node", "Age", "Actions"}, g.Map(w.Workers, func(worker view.Worker) g.Node {
			return h.Tr(h.ID("worker-"+worker.Name),
				rowHead(g.Text(worker.Name)), h.Td(badge(worker.Level, worker.State)), h.Td(age(worker.Since)), cell(worker.Revision), cell(worker.Node), h.Td(age(worker.Created)),
				h.Td(h.Class("row-actions"), g.Iff(worker.Drain != nil, func() g.Node { return dialogLink(l.Action(w.Entry, worker.Drain), "button destroys", "Drain") })))
		}))),
		g.If(w.More > 0, note(fmt.Sprintf("%d more workers: use the command.", w.More))),
	}
}

// Description is the content of the page of the Pods and events of an object.
func Description(l Links, d *view.Description) g.Node {
	return g.Group{
		l.objectHead(d.Entry, "/events", nil, nil),
		note("Read with your permissions, when the page opens."),
		problemNote(d.Problem),
		section("pods", "Pods", g.If(len(d.Pods) == 0, empty(false, "There are no Pods: they have not started, or were deleted.")),
			g.If(len(d.Pods) > 0, table("Pods", []string{"Name", "Step", "State", "Node", "Age"}, g.Map(d.Pods, func(pod render.PodState) g.Node {
				return h.Tr(h.ID("pod-"+pod.Name), rowHead(g.Text(pod.Name)), cell(pod.Part), h.Td(badge(view.PodLevel(&pod), pod.State)), cell(pod.Node), h.Td(age(pod.Created)))
			})))),
		section("event-list", "Events", g.If(len(d.Events) == 0, empty(false, "There are no events: the API server deletes them after an hour.")),
			g.If(len(d.Events) > 0, table("Events", []string{"Last", "Type", "Object", "Reason", "Message"}, g.Map(d.Events, func(event render.Event) g.Node {
				level := view.LevelNone
				if event.Type == "Warning" {
					level = view.LevelProblem
				}
				return h.Tr(h.Td(age(event.Last)), h.Td(badge(level, event.Type)), rowHead(g.Text(event.Object)), cell(event.Reason), wideCell(g.Text(event.Message)))
			})))),
		l.command(d.Command),
	}
}

// YAML is the content of the page of an object as the API server has it.
func YAML(l Links, e *view.Entry, text, problem string) g.Node {
	return g.Group{l.objectHead(e, "/yaml", nil, nil), problemNote(problem), g.If(problem == "", preformatted("YAML", text)), l.command(view.YAMLCommand(e))}
}

// Log is the content of the page of the whole log of a sequence, which is below it.
func Log(l Links, e *view.Entry) g.Node { return l.objectHead(e, "/logs", nil, nil) }

// DeadLetters is the content of the page of the dead letters of a Queue. All of them contain the text of the filter.
func DeadLetters(l Links, e *view.Entry, letters []view.DeadLetter, filter, problem string) g.Node {
	none, actions := "There are no dead letters.", view.DeadLetterActions(e)
	if filter != "" {
		none, actions = fmt.Sprintf("No dead letter has %q.", filter), view.MatchingLetterActions(e, filter)
	}
	return g.Group{
		l.objectHead(e, "/dead", nil, nil),
		note(fmt.Sprintf("The oldest first, at most %d. They are read from the broker with your permissions, when the page opens.", view.MaxDeadLetters)),
		l.filterForm(l.Object(e, "/dead"), "Filter by error, kind or priority", filter),
		problemNote(problem),
		g.If(problem == "" && len(letters) == 0, empty(false, none)),
		g.If(len(letters) > 0, g.Group{
			g.If(len(actions) > 0, h.Div(h.Class("actions"), l.buttons(e, actions))),
			// A form, so that the buttons for the checked dead letters need no script.
			form("get", l.Object(e, "/action"), "#dialog-content",
				table("Dead letters", []string{"Select", "ID", "Died", "Attempts", "Priority", "Error", "Payload"}, g.Map(letters, deadLetter)),
				h.Div(h.Class("actions"),
					h.Button(h.Type("submit"), h.Name("do"), h.Value(view.RequeueLetters), h.Class(""), g.Text("Requeue selected")),
					h.Button(h.Type("submit"), h.Name("do"), h.Value(view.DeleteLetters), h.Class("destroys"), g.Text("Delete selected")))),
		}),
		l.command(view.DeadLetterList(e, filter)),
	}
}

func deadLetter(letter view.DeadLetter) g.Node {
	clean := letter.Clean()
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(clean.Headers)) {
		headers = append(headers, name+": "+strings.Join(clean.Headers[name], ", "))
	}
	id := strconv.FormatUint(letter.ID, 10)
	return h.Tr(h.ID("letter-"+id),
		h.Td(h.Input(h.Type("checkbox"), h.Name("id"), h.Value(id), h.Aria("label", "Select "+id))),
		rowHead(g.Text(id)), h.Td(age(clean.Died)), cell(strconv.Itoa(clean.Attempts)), cell(clean.Priority), wideCell(g.Text(clean.Error)),
		h.Td(h.Details(h.Summary(g.Text(fmt.Sprintf("%d bytes", len(letter.Payload)))),
			preformatted("Payload of "+id, string(clean.Payload)), g.If(len(headers) > 0, preformatted("Headers of "+id, strings.Join(headers, "\n"))))))
}

// Changes is the content of the page of the files that the agent of a session changed.
func Changes(l Links, c *view.Changes) g.Node {
	var files g.Group
	for i, f := range c.Files {
		files = append(files, h.Details(h.ID("file-"+strconv.Itoa(i+1)), g.Attr("open"),
			h.Summary(h.Code(g.Text(f.Path)), g.Text(fmt.Sprintf(" +%d −%d", f.Added, f.Removed))),
			h.Pre(h.TabIndex("0"), h.Role("group"), h.Aria("label", "Changes of "+f.Path), g.Map(f.Lines, diffLine)),
			g.If(f.More > 0, note(fmt.Sprintf("%d more changes of this file: use the command.", f.More)))))
	}
	return g.Group{
		l.objectHead(c.Entry, "/changes", nil, nil),
		note("What the agent's tools wrote into files, from the log of the latest attempt when the page opens. Commands that the agent ran may have changed more."),
		l.command(c.Command),
		problemNote(c.Problem),
		g.If(len(c.Files) == 0, empty(false, "The log shows no changed files.")),
		files,
		g.If(c.More > 0, note(fmt.Sprintf("%d more changes of other files: use the command.", c.More))),
	}
}

func diffLine(line view.DiffLine) g.Node {
	switch {
	case line.Removed:
		return h.Span(h.Class("removed"), g.Text("- "+line.Text+"\n"))
	case line.Added:
		return h.Span(h.Class("added"), g.Text("+ "+line.Text+"\n"))
	default:
		return g.Text("  " + line.Text + "\n")
	}
}

// Confirmation asks before an action runs.
func Confirmation(l Links, e *view.Entry, action *view.Action, problem string) g.Node {
	return g.Group{
		h.H1(h.ID("dialog-title"), g.Text(action.Label)),
		h.P(g.Text(e.Kind.Name+" "), h.Strong(g.Text(e.Namespace+"/"+e.Name))),
		h.P(g.Text(action.Effect)),
		note("The same with kubectl:"),
		l.command(action.Args),
		g.If(problem != "", h.P(h.Class("problem"), h.Role("alert"), g.Text(problem))),
		form("post", l.Action(e, action), "#dialog-content",
			g.If(action.Destroys, h.P(h.Label(h.For("confirm"), g.Text("Type "), h.Strong(g.Text(action.Confirm)), g.Text(" to continue")),
				h.Input(h.ID("confirm"), h.Name("confirm"), h.AutoComplete("off"), h.Required(), h.AutoFocus()))),
			h.Div(h.Class("actions"), h.Button(h.Type("submit"), g.If(action.Destroys, h.Class("destroys")),
				g.If(!action.Destroys, g.Group{h.Class("primary"), h.AutoFocus()}), g.Text(action.Label)), closeLink(l.Object(e, ""), "Cancel"))),
	}
}

// Outcome shows the output of a command.
func Outcome(l Links, title string, args []string, succeeded bool, output, back string) g.Node {
	class, text := "note", "The command succeeded."
	if !succeeded {
		class, text = "problem", "The command failed."
	}
	return g.Group{
		h.H1(h.ID("dialog-title"), g.Text(title)),
		h.P(h.Class(class), h.Role("status"), g.Text(text)),
		l.command(args),
		g.If(output != "", preformatted("Output", output)),
		h.Div(h.Class("actions"), closeLink(back, "Close", h.AutoFocus())),
	}
}

// closeLink closes the dialog; without a script, it is a link.
func closeLink(address, text string, attributes ...g.Node) g.Node {
	return linkButton(address, text, g.Attr("data-close", ""), g.Group(attributes))
}

// messageBox sends messages to an interactive session. It is not part of the content that changes, which would lose the user's input.
func (l Links) messageBox(e *view.Entry) g.Node {
	return h.Section(h.ID("message"), h.Aria("label", "Message"),
		form("post", l.Object(e, "/message"), "#message-status",
			h.Label(h.For("message-text"), g.Text("Message to the agent")),
			h.Textarea(h.ID("message-text"), h.Name("message"), h.Rows("2"), h.Required(), h.MaxLength("65536")),
			h.Div(h.Class("actions"), h.Button(h.Type("submit"), h.Class("primary"), g.Text("Send")))),
		h.Div(h.ID("message-status"), h.Role("status"), h.Aria("live", "polite")),
		l.command(view.AttachCommand(e)))
}

// MessageOutcome shows whether a message was sent.
func MessageOutcome(l Links, e *view.Entry, problem string) g.Node {
	outcome := problemNote(problem)
	if problem == "" {
		outcome = h.P(h.Class("note"), g.Attr("data-sent", ""), g.Text("Sent: the agent works on it."))
	}
	return g.Group{outcome, h.P(h.A(h.Href(l.Object(e, "")), g.Text("Show the conversation")))}
}
