package page

import (
	"fmt"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Queue is the content of the page of a Queue.
func Queue(l Links, q *view.Queue) g.Node {
	return g.Group{
		l.objectHead(q.Entry, q.Actions, nil),
		facts(q.Facts),
		section("load", "Load", h.Div(h.Class("charts"), chart(&q.Backlog), chart(&q.Rates)), past(q.Past)),
		section("dead", "Dead letters", h.P(g.Text(strconv.FormatInt(q.Dead, 10)+" messages failed too often. "),
			h.A(h.Class("button"), h.Href(l.DeadLetters(q.Entry)), g.Text("Show dead letters")))),
		conditions(q.Conditions),
	}
}

// Pool is the content of the page of a WorkerPool.
func Pool(l Links, p *view.Pool) g.Node {
	return g.Group{
		l.objectHead(p.Entry, p.Actions, p.Problems),
		facts(p.Facts),
		section("decision", "Number of workers", preformatted("The last scaling decision", strings.Join(p.Explanation, "\n"))),
		section("load", "Workers over time", h.Div(h.Class("charts"), chart(&p.Workers), chart(&p.Backlog)), past(p.Past)),
		section("revisions", "Revisions", table("Revisions", []string{"Revision", "Role", "Workers", "Ready", "Draining", "Succeeded", "Failed", "Image", "Age"},
			g.Map(p.Revisions, func(r view.Revision) g.Node { return revision(&r) })),
			h.P(h.A(h.Class("button"), h.Href(l.Workers(p.Entry)), g.Text("Show workers")))),
		conditions(p.Conditions),
	}
}

func revision(r *view.Revision) g.Node {
	name := r.Name
	if r.Version != "" {
		name = r.Version + " (" + r.Name + ")"
	}
	workers := fmt.Sprintf("%d of %d ready", r.Ready, r.Replicas)
	return h.Tr(h.ID("revision-"+r.Name),
		h.Th(h.Scope("row"), g.Text(name)), h.Td(g.Text(r.Role)), h.Td(g.Text(workers)), h.Td(h.Class("timeline"), bar("good", workers, 0, r.ReadyShare)),
		h.Td(g.Text(strconv.Itoa(int(r.Draining)))), h.Td(g.Text(r.Succeeded)), h.Td(g.Text(r.Failed)), h.Td(h.Class("wide"), g.Text(r.Image)), h.Td(age(r.Created)))
}

// Session is the content of the page of an AgenticSession.
func Session(l Links, s *view.Session) g.Node {
	return g.Group{
		l.objectHead(s.Entry, s.Actions, s.Problems),
		g.If(s.Title != "", h.P(g.Text(s.Title))),
		h.Dl(h.Class("facts"),
			h.Div(h.Dt(g.Text("Runner")), h.Dd(g.Text(s.Runner))),
			g.Map(s.Budgets, func(b view.Budget) g.Node {
				return h.Div(h.Dt(g.Text(b.Name)), h.Dd(g.Text(b.Used+" of "+b.Limit), bar("active", b.Name+": "+b.Used+" of "+b.Limit, 0, b.Share)))
			}),
			g.If(len(s.Repos) > 0, h.Div(h.Dt(g.Text("Repositories")), h.Dd(g.Map(s.Repos, func(repo string) g.Node { return h.Div(g.Text(repo)) }))))),
		section("attempts", "Attempts", table("Attempts", []string{"Attempt", "Outcome", "Time", "Cost", "Reason"}, g.Map(s.Attempts, func(a view.Attempt) g.Node {
			return h.Tr(h.Th(h.Scope("row"), g.Text(a.Label)), h.Td(badge(a.Level, a.Outcome)), h.Td(elapsed(a.Start, a.End)), h.Td(g.Text(a.Cost)), h.Td(h.Class("wide"), g.Text(a.Reason)))
		})), g.Iff(s.HasLog, func() g.Node {
			text := "Show the agent's log"
			if s.AcceptsMessages {
				text = "Show the agent's log, and send messages"
			}
			return h.P(h.A(h.Class("button"), h.Href(l.Logs(s.Entry, "")), g.Text(text)), h.A(h.Class("button"), h.Href(l.Changes(s.Entry)), g.Text("Show changed files")))
		})),
		g.Iff(len(s.Repositories) > 0, func() g.Node {
			return section("repositories", "Repositories", table("Repositories", []string{"Repository", "State", "Branch", "Commit", "Pull request", "Error"}, g.Map(s.Repositories, func(r view.Repository) g.Node {
				pullRequest := g.Text(r.PullRequest)
				if r.Link != "" {
					pullRequest = h.A(h.Href(r.Link), h.Rel("noopener noreferrer"), h.Target("_blank"), g.Text(r.PullRequest))
				}
				return h.Tr(h.Th(h.Scope("row"), g.Text(r.Name)), h.Td(badge(r.Level, r.State)), h.Td(g.Text(r.Branch)), h.Td(h.Code(g.Text(r.Commit))),
					h.Td(h.Class("wide"), pullRequest), h.Td(h.Class("wide"), g.Text(r.Error)))
			})))
		}),
		g.Iff(s.Summary != "" || s.Usage != "", func() g.Node {
			return section("result", "Result", g.If(s.Summary != "", preformatted("Summary", s.Summary)), g.If(s.Usage != "", preformatted("Usage", s.Usage)))
		}),
		g.Iff(s.Prompt != "", func() g.Node {
			return section("prompt", "Prompt", h.Details(h.Summary(g.Text("Show")), preformatted("Prompt", s.Prompt)))
		}),
		conditions(s.Conditions),
	}
}

// Schedule is the content of the page of a Schedule.
func Schedule(l Links, s *view.Schedule) g.Node {
	zone := s.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	return g.Group{
		l.objectHead(s.Entry, s.Actions, nil),
		h.P(h.Code(g.Text(s.Expression)), g.Text(" in "+zone+" starts "+s.Starts+".")),
		facts(s.Facts),
		section("next", "Next times", problemNote(s.NextError),
			h.Ol(g.Map(s.Next, func(t view.Time) g.Node { return h.Li(g.Text(t.Local+" ("), age(t.Due), g.Text(")")) }))),
		g.Iff(len(s.Active) > 0, func() g.Node {
			return section("active", "Active runs", h.Ul(g.Map(s.Active, func(run view.ActiveRun) g.Node { return h.Li(l.activeRun(s, &run)) })))
		}),
		g.Iff(s.LastMissed != "", func() g.Node {
			return section("missed", "Missed", h.P(h.Class("problem"), g.Text("The last one was due "), age(s.LastMissedTime), g.Text(": "+s.LastMissed)))
		}),
		conditions(s.Conditions),
	}
}

func (l Links) activeRun(s *view.Schedule, run *view.ActiveRun) g.Node {
	due := g.Group{g.Text(", triggered")}
	if !run.Due.IsZero() {
		due = g.Group{g.Text(", due "), age(run.Due)}
	}
	if run.Kind == nil {
		return g.Group{g.Text(run.Name), due}
	}
	return g.Group{h.A(h.Href(l.Object(run.Kind, s.Namespace, run.Name)), g.Text(run.Name)), due}
}

// Stale is the content of the page of stale Jobs.
func Stale(l Links, s *view.Stale) g.Node {
	return g.Group{
		h.H1(g.Text("Stale Jobs")),
		h.P(h.Class("note"), g.Text("The Jobs are classified on this machine. This page deletes nothing: copy the command of the next step.")),
		g.Map(s.Commands, l.command),
		problemNote(s.Problem),
		g.If(s.Summary != "", h.P(g.Text(s.Summary+", read "), age(s.Read))),
		g.If(s.Problem == "" && len(s.Groups) == 0, h.P(h.Class("note"), g.Text("No Job is stale."))),
		g.Iff(len(s.Groups) > 0, func() g.Node {
			headers := []string{"Owner", "Namespace", "Category", "Reason", "Jobs"}
			return table("Stale Jobs by owner and reason", headers, g.Map(s.Groups, func(group view.StaleGroup) g.Node {
				return h.Tr(h.ID("stale-"+group.Namespace+"."+group.Owner+"."+group.Reason),
					h.Th(h.Scope("row"), g.Text(group.Owner)), h.Td(g.Text(group.Namespace)),
					h.Td(badge(group.Level, group.Category)), h.Td(g.Text(group.Reason)),
					h.Td(h.Class("wide"), h.Ul(h.Class("jobs"), g.Map(group.Jobs, func(job view.StaleJob) g.Node { return l.staleJob(&job) })),
						g.If(group.More > 0, h.Span(h.Class("note"), g.Text(fmt.Sprintf("and %d more", group.More))))))
			}))
		}),
		g.If(s.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more groups: use the command.", s.More)))),
	}
}

func (l Links) staleJob(job *view.StaleJob) g.Node {
	return h.Li(h.Strong(g.Text(job.Name)), g.Text(" "), age(job.Since), g.Text(": "+job.Message+" "),
		g.If(job.Cause != "", g.Text("Cause: "+job.Cause+" ")),
		g.Iff(job.Next != "", func() g.Node {
			return h.Div(h.Class("command"), h.Code(g.Text(job.Next)), h.Button(h.Type("button"), g.Attr("data-copy", ""), g.Text("Copy")))
		}),
		dialogLink(l.Explain(job.Namespace, job.Name), "button", "Explain"))
}

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
