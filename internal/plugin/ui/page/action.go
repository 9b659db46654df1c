package page

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Confirmation asks before an action runs.
func Confirmation(l Links, e *view.Entry, action *view.Action, problem string) g.Node {
	address := l.Action(e, action)
	return g.Group{
		h.H1(h.ID("dialog-title"), g.Text(action.Label)),
		h.P(g.Text(e.Kind.Name+" "), h.Strong(g.Text(e.Namespace+"/"+e.Name))),
		h.P(g.Text(action.Effect)),
		h.P(h.Class("note"), g.Text("The same with kubectl:")),
		l.command(action.Args),
		g.If(problem != "", h.P(h.Class("problem"), h.Role("alert"), g.Text(problem))),
		h.Form(h.Method("post"), h.Action(address), g.Attr("hx-post", address), g.Attr("hx-target", "#dialog-content"), g.Attr("hx-swap", "innerHTML"),
			g.Iff(action.Destroys, func() g.Node {
				return h.P(h.Label(h.For("confirm"), g.Text("Type "), h.Strong(g.Text(action.Confirm)), g.Text(" to continue")),
					h.Input(h.ID("confirm"), h.Name("confirm"), h.AutoComplete("off"), h.Required()))
			}),
			h.Div(h.Class("actions"), h.Button(h.Type("submit"), g.If(action.Destroys, h.Class("destroys")), g.Text(action.Label)), closeLink(l.Object(e.Kind, e.Namespace, e.Name), "Cancel"))),
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
		h.Div(h.Class("actions"), closeLink(back, "Close")),
	}
}

// closeLink closes the dialog; without a script, it is a link.
func closeLink(address, text string) g.Node {
	return h.A(h.Class("button"), h.Href(address), g.Attr("data-close", ""), g.Text(text))
}

// messageBox sends messages to an interactive session. It is not part of the content that changes, which would lose the user's input.
func (l Links) messageBox(e *view.Entry) g.Node {
	address := l.Message(e)
	return h.Section(h.ID("message"), h.Aria("labelledby", "message-title"),
		h.H2(h.ID("message-title"), g.Text("Message")),
		h.Form(h.Method("post"), h.Action(address), g.Attr("hx-post", address), g.Attr("hx-target", "#message-status"), g.Attr("hx-swap", "innerHTML"),
			h.Label(h.For("message-text"), g.Text("Message to the agent. Its work on it appears in the log.")),
			h.Textarea(h.ID("message-text"), h.Name("message"), h.Rows("3"), h.Required(), h.MaxLength("65536")),
			h.Div(h.Class("actions"), h.Button(h.Type("submit"), g.Text("Send")))),
		h.Div(h.ID("message-status"), h.Role("status"), h.Aria("live", "polite")),
		h.P(h.Class("note"), g.Text("The same with kubectl, which sends its standard input as one message:")),
		l.command(view.AttachCommand(e)))
}

// MessageOutcome shows whether a message was sent.
func MessageOutcome(l Links, e *view.Entry, problem string) g.Node {
	back := h.P(h.A(h.Href(l.Logs(e, "")), g.Text("Show the agent's log")))
	if problem != "" {
		return g.Group{problemNote(problem), back}
	}
	return g.Group{h.P(h.Class("note"), g.Attr("data-sent", ""), g.Text("Sent: the agent works on it.")), back}
}
