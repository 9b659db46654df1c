package page

import (
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Sequence is the content of the page of a SequentialJob.
func Sequence(l Links, s *view.Sequence) g.Node {
	all := []view.Fact{{Name: "Run", Value: s.Run}, {Name: "Steps", Value: s.Progress}, {Name: "Started", Value: view.Unknown, Time: s.Start}, {Name: "Ended", Value: view.Unknown, Time: s.Finish}}
	return g.Group{
		l.objectHead(s.Entry, s.Actions, s.Problems),
		facts(all),
		g.Iff(len(s.Parameters) > 0, func() g.Node {
			return section("parameters", "Parameters", h.Dl(h.Class("facts"), g.Map(s.Parameters, func(p v1alpha1.Parameter) g.Node {
				return h.Div(h.Dt(g.Text(p.Name)), h.Dd(g.Text(p.Value)))
			})))
		}),
		section("steps", "Steps", table("Steps", []string{"Step", "State", "Time", "Timeline", "Details", "Actions"},
			g.Map(s.Steps, func(step view.Step) g.Node { return l.step(s, &step) }))),
	}
}

func (l Links) step(s *view.Sequence, step *view.Step) g.Node {
	return h.Tr(h.ID("step-"+step.Name),
		h.Th(h.Scope("row"), g.Text(step.Name), g.If(step.Finally, h.Span(h.Class("note"), g.Text(" finally")))),
		h.Td(badge(step.Level, step.Phase)),
		h.Td(elapsed(step.Start, step.Finish)),
		h.Td(h.Class("timeline"), bar(step.Level.String(), step.Name+": "+step.Phase, step.Offset, step.Length)),
		h.Td(h.Class("wide"), stepDetails(step)),
		h.Td(h.Class("row-actions"),
			g.Iff(step.HasLog, func() g.Node { return h.A(h.Class("button"), h.Href(l.Logs(s.Entry, step.Name)), g.Text("Log")) }),
			g.Map(step.Actions, func(a view.Action) g.Node { return l.button(s.Entry, &a) })))
}

func stepDetails(step *view.Step) g.Node {
	return g.Group{
		g.If(len(step.Remarks) > 0, h.Span(g.Text(strings.Join(step.Remarks, ", ")+" "))),
		g.Iff(!step.NextAttempt.IsZero() && step.Finish.IsZero(), func() g.Node { return h.Span(g.Text("next attempt "), age(step.NextAttempt), g.Text(" ")) }),
		g.If(step.Message != "", h.Span(g.Text(step.Message))),
		g.Iff(step.Output != "", func() g.Node {
			return h.Details(h.Summary(g.Text("Output")), preformatted("Output of "+step.Name, step.Output))
		}),
	}
}
