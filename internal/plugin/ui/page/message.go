package page

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// messageBox sends messages to an interactive session. It is not part of the content that changes, which would lose what the
// user types.
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

// MessageOutcome says what became of a message.
func MessageOutcome(l Links, e *view.Entry, problem string) g.Node {
	back := h.P(h.A(h.Href(l.Logs(e, "")), g.Text("Show the agent's log")))
	if problem != "" {
		return g.Group{problemNote(problem), back}
	}
	return g.Group{h.P(h.Class("note"), g.Attr("data-sent", ""), g.Text("Sent: the agent works on it.")), back}
}
