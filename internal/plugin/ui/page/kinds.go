package page

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Queue is the content of the page of a Queue.
func Queue(l Links, q *view.Queue) g.Node {
	return g.Group{
		l.objectHead(q.Entry, "", q.Actions, nil),
		g.If(q.Dead > 0, linkButton(l.Object(q.Entry, "/dead"), "Show dead letters")),
		l.facts(q.Facts),
		section("load", "Load", h.Div(h.Class("charts"), chart(&q.Backlog), chart(&q.Rates)), past(q.Past)),
		conditions(q.Conditions),
	}
}

// Pool is the content of the page of a WorkerPool.
func Pool(l Links, p *view.Pool) g.Node {
	return g.Group{
		l.objectHead(p.Entry, "", p.Actions, p.Problems),
		l.facts(p.Facts),
		section("decision", "Number of workers", preformatted("The last scaling decision", strings.Join(p.Explanation, "\n"))),
		section("revisions", "Revisions", table("Revisions", []string{"Revision", "Role", "Workers", "Ready", "Draining", "Succeeded", "Failed", "Image"},
			g.Map(p.Revisions, func(r view.Revision) g.Node {
				name, workers := r.Name, fmt.Sprintf("%d of %d ready", r.Ready, r.Replicas)
				if r.Version != "" {
					name = r.Version + " (" + r.Name + ")"
				}
				return h.Tr(h.ID("revision-"+r.Name), rowHead(g.Text(name)), cell(r.Role), cell(workers), h.Td(h.Class("timeline"), bar("good", workers, 0, r.ReadyShare)),
					cell(strconv.Itoa(int(r.Draining))), cell(r.Succeeded), cell(r.Failed), wideCell(g.Text(r.Image)))
			}))),
		section("load", "Load", h.Div(h.Class("charts"), chart(&p.Workers), chart(&p.Backlog)), past(p.Past)),
		conditions(p.Conditions),
	}
}

// Session is the content of the page of an AgenticSession. The conversation is beside it.
func Session(l Links, s *view.Session) g.Node {
	return g.Group{
		l.objectHead(s.Entry, "", s.Actions, s.Problems),
		g.If(s.Title != "", h.P(g.Text(s.Title))),
		h.Dl(h.Class("facts"),
			g.Map(s.Budgets, func(b view.Budget) g.Node {
				used, level := b.Used+" of "+b.Limit, "active"
				if b.Share >= full {
					level = "problem"
				}
				return fact(b.Name, g.Text(used), bar(level, b.Name+": "+used, 0, b.Share))
			}),
			fact("Runner", g.Text(s.Runner)),
			g.If(len(s.Repos) > 0, fact("Repositories", g.Map(s.Repos, func(repo string) g.Node { return h.Div(g.Text(repo)) })))),
		section("attempts", "Attempts", g.If(len(s.Attempts) == 0, empty(false, "No attempt has started.")),
			g.If(len(s.Attempts) > 0, table("Attempts", []string{"Attempt", "Outcome", "Time", "Cost", "Reason"}, g.Map(s.Attempts, func(a view.Attempt) g.Node {
				return h.Tr(rowHead(g.Text(a.Label)), h.Td(badge(a.Level, a.Outcome)), h.Td(elapsed(a.Start, a.End)), cell(a.Cost), wideCell(g.Text(a.Reason)))
			})))),
		g.If(len(s.Repositories) > 0, section("repositories", "Repositories",
			table("Repositories", []string{"Repository", "State", "Branch", "Commit", "Result"}, g.Map(s.Repositories, func(r view.Repository) g.Node {
				pullRequest := g.Text(r.PullRequest)
				if r.Link != "" {
					pullRequest = h.A(h.Href(r.Link), h.Rel("noopener noreferrer"), h.Target("_blank"), pullRequest)
				}
				return h.Tr(rowHead(g.Text(r.Name)), h.Td(badge(r.Level, r.State)), wideCell(g.Text(r.Branch)), h.Td(h.Code(g.Text(r.Commit))), wideCell(pullRequest, g.Text(" "+r.Error)))
			})))),
		g.If(s.Summary != "" || s.Usage != "", section("result", "Result",
			g.If(s.Summary != "", preformatted("Summary", s.Summary)), g.If(s.Usage != "", preformatted("Usage", s.Usage)))),
		conditions(s.Conditions),
	}
}

// full is the share of a budget that is used up, in percent.
const full = 100

// Schedule is the content of the page of a Schedule.
func Schedule(l Links, s *view.Schedule) g.Node {
	return g.Group{
		l.objectHead(s.Entry, "", s.Actions, nil),
		h.P(h.Code(g.Text(s.Expression)), g.Text(" in "+cmp.Or(s.TimeZone, "UTC")+" starts "+s.Starts+".")),
		g.If(s.LastMissed != "", h.P(h.Class("problem"), g.Text("The last missed time was due "), age(s.LastMissedTime), g.Text(": "+s.LastMissed))),
		l.facts(s.Facts),
		h.Div(h.Class("columns"),
			section("runs", "Runs", l.runs(s.Runs, s.Bars, nil)),
			section("next", "Next times", problemNote(s.NextError),
				h.Ol(g.Map(s.Next, func(t view.Time) g.Node { return h.Li(g.Text(t.Local+" ("), age(t.Due), g.Text(")")) })))),
		conditions(s.Conditions),
	}
}

// runs lists runs, of which one may be the current page.
func (l Links) runs(all []view.Run, bars []view.Bar, current *view.Entry) g.Node {
	if len(all) == 0 {
		return empty(false, "No run is known.")
	}
	return g.Group{
		h.P(h.Class("tall"), l.bars(bars)),
		table("Runs", []string{"Run", "State", "Due", "Request", "Started", "Time", "Problem"}, g.Map(all, func(run view.Run) g.Node {
			name, id := g.Group{l.link(run.Entry)}, run.Name
			if run.IsGone || current != nil && current.Name == run.Name {
				name = g.Group{g.Text(run.Name)}
			}
			if run.Number > 1 || run.IsGone {
				id += "-" + strconv.Itoa(int(run.Number))
				name = append(name, h.Span(h.Class("place"), g.Text(fmt.Sprintf(" run %d", run.Number))))
			}
			return h.Tr(h.ID("run-"+id), rowHead(name), h.Td(badge(run.Level, run.Status)), h.Td(g.If(!run.Due.IsZero(), age(run.Due))), cell(run.Request),
				h.Td(age(run.Start)), h.Td(elapsed(run.Start, run.Finish)), wideCell(reason(run.Entry)))
		})),
	}
}

// Runs is the content of the page of the runs of a sequence or session.
func Runs(l Links, e *view.Entry, runs []view.Run, now time.Time) g.Node {
	text := "Earlier runs are listed if this page has seen them: the object keeps its latest run only."
	if schedule, _ := view.ScheduleOf(e); schedule != nil {
		text = "The runs of Schedule " + schedule.Name + ", and those that this page has seen."
	}
	return g.Group{l.objectHead(e, "/runs", nil, nil), note(text), section("runs", "Runs", l.runs(runs, view.NewBars(runs, now), e))}
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
		problemNote(s.Problem),
		g.If(s.Summary != "", h.P(g.Text(s.Summary+", read "), age(s.Read))),
		g.If(s.Problem == "" && len(s.Groups) == 0, empty(false, "No Job is stale.")),
		g.If(len(s.Groups) > 0, table("Stale Jobs by owner and reason", headers, g.Map(s.Groups, func(group view.StaleGroup) g.Node {
			return h.Tr(h.ID("stale-"+group.Namespace+"."+group.Owner+"."+group.Reason),
				rowHead(g.Text(group.Owner)), cell(group.Namespace), h.Td(badge(group.Level, group.Category)), cell(group.Reason),
				wideCell(h.Ul(h.Class("jobs"), g.Map(group.Jobs, job)), g.If(group.More > 0, h.Span(h.Class("note"), g.Text(fmt.Sprintf("and %d more", group.More))))))
		}))),
		g.If(s.More > 0, note(fmt.Sprintf("%d more groups: use the command.", s.More))),
		g.Map(s.Commands, l.command),
	}
}

// Sequence is the content of the page of a SequentialJob.
func Sequence(l Links, s *view.Sequence) g.Node {
	return g.Group{
		l.objectHead(s.Entry, "", s.Actions, s.Problems),
		h.Dl(h.Class("facts"), fact("Run", g.Text(s.Run)), fact("Steps", g.Text(s.Progress)), fact("Started", age(s.Start)), fact("Time", elapsed(s.Start, s.Finish)),
			g.If(len(s.Bars) > 1, fact("Runs", l.bars(s.Bars))),
			g.Map(s.Parameters, func(p v1alpha1.Parameter) g.Node { return fact(p.Name, g.Text(p.Value)) }),
			g.Map(s.Results, func(p v1alpha1.Parameter) g.Node { return fact("Result "+p.Name, g.Text(p.Value)) })),
		g.If(len(s.Steps) == 0, empty(false, "The run has not started.")),
		g.If(len(s.Steps) > 0, section("steps", "Steps", table("Steps", []string{"Step", "State", "Time", "Timeline", "Details", "Actions"}, g.Map(s.Steps, func(step view.Step) g.Node {
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
		})))),
	}
}

// Missing is the page of an object that does not exist, or cannot be read.
func Missing(kind *view.Kind, namespace, name string, state view.WatchState) g.Node {
	return g.Group{
		h.H1(g.Text(kind.Name + " " + namespace + "/" + name)),
		WatchProblem(state),
		g.If(state.Synced && state.Problem == "", note("It does not exist, or was deleted.")),
	}
}

// tabs are the pages of an object: the part of their address, and their title.
var tabs = map[*view.Kind][][2]string{
	view.Sequences: {{"", "Steps"}, {"/logs", "Log"}, {"/runs", "Runs"}, {"/events", "Events"}, {"/yaml", "YAML"}},
	view.Sessions:  {{"", "Conversation"}, {"/changes", "Changed files"}, {"/runs", "Runs"}, {"/events", "Events"}, {"/yaml", "YAML"}},
	view.Queues:    {{"", "Load"}, {"/dead", "Dead letters"}, {"/yaml", "YAML"}},
	view.Pools:     {{"", "Load"}, {"/workers", "Workers"}, {"/yaml", "YAML"}},
	view.Schedules: {{"", "Runs"}, {"/yaml", "YAML"}},
}

// objectHead is the top of a page of an object: its name and state, the actions, the problems, and its pages.
func (l Links) objectHead(e *view.Entry, part string, actions []view.Action, problems []render.Problem) g.Node {
	in := l
	in.Namespace = e.Namespace
	return g.Group{
		h.Nav(h.Class("path"), h.Aria("label", "Path"), h.A(h.Href(l.List(e.Kind)), g.Text(e.Kind.Title)), g.Text(" / "), h.A(h.Href(in.List(e.Kind)), g.Text(e.Namespace)), l.scheduleOf(e)),
		h.Div(h.Class("head"), h.H1(g.Text(e.Name), g.Text(" "), badge(e.Level, e.Status)), g.If(len(actions) > 0, h.Div(h.Class("actions"), l.buttons(e, actions)))),
		g.Map(problems, func(p render.Problem) g.Node {
			return h.P(h.Class("problem"), h.Strong(g.Text(p.Reason)), g.Text(": "+p.Message+" ("), age(p.Since), g.Text(")"))
		}),
		g.If(len(problems) == 0 && e.NeedsAttention && e.Level == view.LevelProblem, h.P(h.Class("problem"), reason(e))),
		g.If(len(problems) == 0 && e.Level == view.LevelWaiting && e.Reason != "" && e.Reason != e.Status, h.P(h.Class("waits"), reason(e))),
		h.Nav(h.Class("tabs"), h.Aria("label", "Parts"), h.Ul(g.Map(tabs[e.Kind], func(tab [2]string) g.Node {
			return h.Li(h.A(h.Href(l.Object(e, tab[0])), g.If(tab[0] == part, h.Aria("current", "page")), g.Text(tab[1])))
		}))),
	}
}

// scheduleOf links a run to its Schedule.
func (l Links) scheduleOf(e *view.Entry) g.Node {
	schedule, due := view.ScheduleOf(e)
	if schedule == nil {
		return nil
	}
	return g.Group{g.Text(" / a run of Schedule "), l.link(schedule), g.If(!due.IsZero(), g.Group{g.Text(", due "), age(due)})}
}

func (l Links) facts(all []view.Fact) g.Node {
	return h.Dl(h.Class("facts"), g.Map(all, func(f view.Fact) g.Node { return fact(f.Name, l.factValue(f)) }))
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
