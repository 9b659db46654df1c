package page

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Queue is the content of the page of a Queue.
func Queue(l Links, q *view.Queue) g.Node {
	return g.Group{
		l.objectHead(q.Entry, q.Actions, nil),
		facts(q.Facts),
		section("load", "Load", h.Div(h.Class("charts"), chart(&q.Backlog), chart(&q.Rates)), past(q.Past)),
		section("dead", "Dead letters", h.P(g.Text(strconv.FormatInt(q.Dead, 10)+" messages failed too often. "), linkButton(l.Object(q.Entry, "/dead"), "Show dead letters"))),
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
		section("revisions", "Revisions", table("Revisions", []string{"Revision", "Role", "Workers", "Ready", "Draining", "Succeeded", "Failed", "Image"},
			g.Map(p.Revisions, func(r view.Revision) g.Node {
				name, workers := r.Name, fmt.Sprintf("%d of %d ready", r.Ready, r.Replicas)
				if r.Version != "" {
					name = r.Version + " (" + r.Name + ")"
				}
				return h.Tr(h.ID("revision-"+r.Name), rowHead(g.Text(name)), cell(r.Role), cell(workers), h.Td(h.Class("timeline"), bar("good", workers, 0, r.ReadyShare)),
					cell(strconv.Itoa(int(r.Draining))), cell(r.Succeeded), cell(r.Failed), wideCell(g.Text(r.Image)))
			})),
			h.P(linkButton(l.Object(p.Entry, "/workers"), "Show workers"))),
		conditions(p.Conditions),
	}
}

// Session is the content of the page of an AgenticSession.
func Session(l Links, s *view.Session) g.Node {
	logTitle := "Show the agent's log"
	if s.AcceptsMessages {
		logTitle += ", and send messages"
	}
	return g.Group{
		l.objectHead(s.Entry, s.Actions, s.Problems),
		g.If(s.Title != "", h.P(g.Text(s.Title))),
		h.Dl(h.Class("facts"),
			fact("Runner", g.Text(s.Runner)),
			g.Map(s.Budgets, func(b view.Budget) g.Node {
				used := b.Used + " of " + b.Limit
				return fact(b.Name, g.Text(used), bar("active", b.Name+": "+used, 0, b.Share))
			}),
			g.If(len(s.Repos) > 0, fact("Repositories", g.Map(s.Repos, func(repo string) g.Node { return h.Div(g.Text(repo)) })))),
		section("attempts", "Attempts", table("Attempts", []string{"Attempt", "Outcome", "Time", "Cost", "Reason"}, g.Map(s.Attempts, func(a view.Attempt) g.Node {
			return h.Tr(rowHead(g.Text(a.Label)), h.Td(badge(a.Level, a.Outcome)), h.Td(elapsed(a.Start, a.End)), cell(a.Cost), wideCell(g.Text(a.Reason)))
		})), g.If(s.HasLog, h.P(linkButton(l.Logs(s.Entry, ""), logTitle), linkButton(l.Object(s.Entry, "/changes"), "Show changed files")))),
		g.If(len(s.Repositories) > 0, section("repositories", "Repositories",
			table("Repositories", []string{"Repository", "State", "Branch", "Commit", "Pull request", "Error"}, g.Map(s.Repositories, func(r view.Repository) g.Node {
				pullRequest := g.Text(r.PullRequest)
				if r.Link != "" {
					pullRequest = h.A(h.Href(r.Link), h.Rel("noopener noreferrer"), h.Target("_blank"), pullRequest)
				}
				return h.Tr(rowHead(g.Text(r.Name)), h.Td(badge(r.Level, r.State)), cell(r.Branch), h.Td(h.Code(g.Text(r.Commit))), wideCell(pullRequest), wideCell(g.Text(r.Error)))
			})))),
		g.If(s.Summary != "" || s.Usage != "", section("result", "Result",
			g.If(s.Summary != "", preformatted("Summary", s.Summary)), g.If(s.Usage != "", preformatted("Usage", s.Usage)))),
		g.If(s.Prompt != "", section("prompt", "Prompt", h.Details(h.Summary(g.Text("Show")), preformatted("Prompt", s.Prompt)))),
		conditions(s.Conditions),
	}
}

// Schedule is the content of the page of a Schedule.
func Schedule(l Links, s *view.Schedule) g.Node {
	return g.Group{
		l.objectHead(s.Entry, s.Actions, nil),
		h.P(h.Code(g.Text(s.Expression)), g.Text(" in "+cmp.Or(s.TimeZone, "UTC")+" starts "+s.Starts+".")),
		facts(s.Facts),
		section("next", "Next times", problemNote(s.NextError),
			h.Ol(g.Map(s.Next, func(t view.Time) g.Node { return h.Li(g.Text(t.Local+" ("), age(t.Due), g.Text(")")) }))),
		g.If(len(s.Runs) > 0, section("runs", "Runs", table("Runs", []string{"Run", "State", "Due", "Request", "Time", "Problem"}, g.Map(s.Runs, func(run view.ScheduleRun) g.Node {
			return h.Tr(h.ID("run-"+run.Name), rowHead(l.link(run.Entry)), h.Td(badge(run.Level, run.Status)), h.Td(age(run.Due)), cell(run.Request),
				h.Td(elapsed(run.Start, run.Finish)), wideCell(reason(run.Entry)))
		})))),
		g.If(s.LastMissed != "", section("missed", "Missed",
			h.P(h.Class("problem"), g.Text("The last one was due "), age(s.LastMissedTime), g.Text(": "+s.LastMissed)))),
		conditions(s.Conditions),
	}
}

// Stale is the content of the page of stale Jobs.
func Stale(l Links, s *view.Stale) g.Node {
	headers := []string{"Owner", "Namespace", "Category", "Reason", "Jobs"}
	job := func(job view.StaleJob) g.Node {
		explanation := l.Base + "/explain?" + url.Values{"namespace": {job.Namespace}, "name": {job.Name}}.Encode()
		return h.Li(h.Strong(g.Text(job.Name)), g.Text(" "), age(job.Since), g.Text(": "+job.Message+" "),
			g.If(job.Cause != "", g.Text("Cause: "+job.Cause+" ")), g.If(job.Next != "", copiedCode(job.Next)), dialogLink(explanation, "button", "Explain"))
	}
	return g.Group{
		h.H1(g.Text("Stale Jobs")),
		note("The Jobs are classified on this machine. This page deletes nothing: copy the command of the next step."),
		g.Map(s.Commands, l.command),
		problemNote(s.Problem),
		g.If(s.Summary != "", h.P(g.Text(s.Summary+", read "), age(s.Read))),
		g.If(s.Problem == "" && len(s.Groups) == 0, note("No Job is stale.")),
		g.If(len(s.Groups) > 0, table("Stale Jobs by owner and reason", headers, g.Map(s.Groups, func(group view.StaleGroup) g.Node {
			return h.Tr(h.ID("stale-"+group.Namespace+"."+group.Owner+"."+group.Reason),
				rowHead(g.Text(group.Owner)), cell(group.Namespace), h.Td(badge(group.Level, group.Category)), cell(group.Reason),
				wideCell(h.Ul(h.Class("jobs"), g.Map(group.Jobs, job)), g.If(group.More > 0, h.Span(h.Class("note"), g.Text(fmt.Sprintf("and %d more", group.More))))))
		}))),
		g.If(s.More > 0, note(fmt.Sprintf("%d more groups: use the command.", s.More))),
	}
}

// Sequence is the content of the page of a SequentialJob.
func Sequence(l Links, s *view.Sequence) g.Node {
	return g.Group{
		l.objectHead(s.Entry, s.Actions, s.Problems),
		h.Dl(h.Class("facts"), fact("Run", g.Text(s.Run)), fact("Steps", g.Text(s.Progress)), fact("Started", age(s.Start)), fact("Ended", age(s.Finish))),
		values("results", "Results", s.Results),
		values("parameters", "Parameters", s.Parameters),
		section("steps", "Steps", table("Steps", []string{"Step", "State", "Time", "Timeline", "Details", "Actions"}, g.Map(s.Steps, func(step view.Step) g.Node {
			return h.Tr(h.ID("step-"+step.Name),
				rowHead(g.Text(step.Name), g.If(step.Finally, h.Span(h.Class("note"), g.Text(" finally")))),
				h.Td(badge(step.Level, step.Phase)), h.Td(elapsed(step.Start, step.Finish)),
				h.Td(h.Class("timeline"), bar(step.Level.String(), step.Name+": "+step.Phase, step.Offset, step.Length)),
				wideCell(
					g.If(len(step.Remarks) > 0, h.Span(g.Text(strings.Join(step.Remarks, ", ")+" "))),
					g.If(!step.NextAttempt.IsZero() && step.Finish.IsZero(), h.Span(g.Text("next attempt "), age(step.NextAttempt), g.Text(" "))),
					g.If(step.Message != "", h.Span(g.Text(step.Message))),
					g.If(step.Content != "", preformatted("What an approval lets run", step.Content)),
					g.If(step.Output != "", h.Details(h.Summary(g.Text("Output")), preformatted("Output of "+step.Name, step.Output)))),
				h.Td(h.Class("row-actions"), g.If(step.HasLog, linkButton(l.Logs(s.Entry, step.Name), "Log")), l.buttons(s.Entry, step.Actions)))
		}))),
	}
}

func values(id, title string, values []v1alpha1.Parameter) g.Node {
	return g.If(len(values) > 0, section(id, title,
		h.Dl(h.Class("facts"), g.Map(values, func(p v1alpha1.Parameter) g.Node { return fact(p.Name, g.Text(p.Value)) }))))
}

// Missing is the page of an object that does not exist, or cannot be read.
func Missing(kind *view.Kind, namespace, name string, state view.WatchState) g.Node {
	return g.Group{
		h.H1(g.Text(kind.Name + " " + namespace + "/" + name)),
		WatchProblem(state),
		g.If(state.Synced && state.Problem == "", note("It does not exist, or was deleted.")),
	}
}

// objectHead is the top of the page of an object: its name and state, the problems, and the actions.
func (l Links) objectHead(e *view.Entry, actions []view.Action, problems []render.Problem) g.Node {
	return g.Group{
		h.Nav(h.Class("path"), h.Aria("label", "Path"), h.A(h.Href(l.List(e.Kind)), g.Text(e.Kind.Title)), g.Text(" / "+e.Namespace)),
		h.H1(g.Text(e.Name), g.Text(" "), badge(e.Level, e.Status)),
		l.scheduleOf(e),
		g.Map(problems, func(p render.Problem) g.Node {
			return h.P(h.Class("problem"), h.Strong(g.Text(p.Reason)), g.Text(": "+p.Message+" ("), age(p.Since), g.Text(")"))
		}),
		g.If(len(problems) == 0 && e.NeedsAttention, h.P(h.Class("problem"), reason(e))),
		g.If(len(actions) > 0, h.Div(h.Class("actions"), l.buttons(e, actions))),
	}
}

// scheduleOf links a run to its Schedule.
func (l Links) scheduleOf(e *view.Entry) g.Node {
	schedule, due := view.ScheduleOf(e)
	switch {
	case schedule == nil:
		return nil
	case due.IsZero():
		return h.P(g.Text("A run of Schedule "), l.link(schedule), g.Text("."))
	default:
		return h.P(g.Text("A run of Schedule "), l.link(schedule), g.Text(", due "), age(due), g.Text("."))
	}
}

func facts(all []view.Fact) g.Node {
	return h.Dl(h.Class("facts"), g.Map(all, func(f view.Fact) g.Node { return fact(f.Name, factValue(f)) }))
}

func fact(name string, value ...g.Node) g.Node { return h.Div(h.Dt(g.Text(name)), h.Dd(value...)) }

func conditions(all []view.Condition) g.Node {
	headers := []string{"Type", "Status", "Reason", "Message", "For"}
	return g.If(len(all) > 0, section("conditions", "Conditions", table("Conditions", headers, g.Map(all, func(c view.Condition) g.Node {
		return h.Tr(rowHead(g.Text(c.Type)), cell(c.Status), cell(c.Reason), wideCell(g.Text(c.Message)), h.Td(age(c.Since)))
	}))))
}

// chart draws lines as an SVG, with a text for people who cannot see it.
func chart(c *view.Chart) g.Node {
	if len(c.Lines) == 0 {
		return note(c.Title + ": the page collects values while it is open.")
	}
	var paths, legend g.Group
	for i, line := range c.Lines {
		class := h.Class([...]string{"line-a", "line-b", "line-c"}[i%3])
		paths = append(paths, g.El("path", class, g.Attr("d", line.Path), g.Attr("vector-effect", "non-scaling-stroke")))
		legend = append(legend, h.Li(class, g.Text(line.Name+" "), h.Strong(g.Text(line.Last))))
	}
	return h.Figure(
		h.FigCaption(g.Text(c.Title), h.Span(h.Class("note"), g.Text(" largest "+c.Max+", since "+c.Since()+" UTC"))),
		h.SVG(h.Class("chart"), g.Attr("viewBox", "0 0 600 120"), g.Attr("preserveAspectRatio", "none"), h.Role("img"), h.Aria("label", c.Text), paths),
		h.Ul(h.Class("legend"), legend))
}

func past(p *view.Past) g.Node {
	switch {
	case p.Window == 0:
		return nil
	case p.Problem != "":
		return problemNote("The history cannot be read from Prometheus: " + p.Problem)
	case p.Loading:
		return note("Reading the history from Prometheus…")
	case len(p.Samples) == 0:
		return note("Prometheus has no history of this object.")
	default:
		return note("History of the last " + p.Window.String() + " from Prometheus.")
	}
}

// bar shows a part of a whole. Offset and length are in percent.
func bar(class, label string, offset, length float64) g.Node {
	percent := func(n float64) string { return strings.TrimSuffix(fmt.Sprintf("%.2f", n), ".00") + "%" }
	return h.SVG(h.Class("bar-chart"), g.Attr("width", "100%"), g.Attr("height", "14"), h.Role("img"), h.Aria("label", label),
		g.El("rect", h.Class("track"), g.Attr("x", "0"), g.Attr("y", "5"), g.Attr("width", "100%"), g.Attr("height", "4")),
		g.If(length > 0, g.El("rect", h.Class(class), g.Attr("x", percent(offset)), g.Attr("y", "1"), g.Attr("width", percent(length)), g.Attr("height", "12"), g.Attr("rx", "2"))))
}
