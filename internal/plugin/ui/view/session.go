package view

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

func sessionEntry(s *v1alpha1.AgenticSession) *Entry {
	e := newEntry(Sessions, s)
	phase := render.SessionPhase(s)
	e.Status, e.Level, e.Reason = string(phase), sessionLevels[phase], cleanLine(string(s.Status.StoppedReason))
	e.Since, e.Finished = timeOf(s.Status.StartTime), timeOf(s.Status.CompletionTime)
	if !e.Finished.IsZero() {
		e.Since = e.Finished
	}
	if !s.DeletionTimestamp.IsZero() {
		e.Status, e.Level = v1alpha1.ReasonDeleting, LevelWaiting
		return e
	}
	e.setProblems(render.SessionProblems(s))
	e.NeedsAttention = e.NeedsAttention || phase == v1alpha1.SessionFailed
	if runs := s.Status.Attempts; len(runs) > 0 && e.Message == "" {
		if last := &runs[len(runs)-1]; phase == v1alpha1.SessionFailed || phase == v1alpha1.SessionStopped && last.Reason == string(s.Status.StoppedReason) {
			e.Reason, e.Message = cleanLine(last.Reason), cleanLine(last.Message)
		}
	}
	return e
}

// sessionLevels has no entry for Pending.
var sessionLevels = map[v1alpha1.SessionPhase]Level{
	v1alpha1.SessionCompleted: LevelGood, v1alpha1.SessionFailed: LevelProblem,
	v1alpha1.SessionCreating: LevelActive, v1alpha1.SessionRunning: LevelActive,
	v1alpha1.SessionStopping: LevelWaiting, v1alpha1.SessionStopped: LevelWaiting,
}

// Attempt is an attempt of a session.
type Attempt struct {
	Label, Outcome, Reason, Cost string
	Level                        Level
	Start, End                   time.Time
}

// Budget is the used part of a session's limit.
type Budget struct {
	Name, Used, Limit string
	// Share is the used part in percent; 0 without a limit.
	Share float64
}

// Session is the page of an AgenticSession.
type Session struct {
	*Entry

	Title    string
	Runner   string
	Repos    []string
	Budgets  []Budget
	Attempts []Attempt
	Problems []render.Problem
	Summary  string
	Usage    string
	// Repositories are the results of the repositories.
	Repositories []Repository
	Actions      []Action
	Conditions   []Condition
}

// NewSession computes the page of an AgenticSession.
func NewSession(e *Entry, s *v1alpha1.AgenticSession, now time.Time) *Session {
	status := &s.Status
	v := &Session{
		Entry: e, Title: cleanLine(s.Spec.DisplayName), Runner: cleanLine(s.Spec.Runner), Problems: render.SessionProblems(s),
		Actions: sessionActions(e, s), Conditions: newConditions(status.Conditions),
		Budgets: []Budget{timeBudget(s, now), costBudget(s)},
	}
	for _, repo := range s.Spec.Repos {
		text := cleanLine(string(repo.URL))
		if repo.Branch != "" {
			text += ", branch " + cleanLine(string(repo.Branch))
		}
		v.Repos = append(v.Repos, text)
	}
	for i := range status.Attempts {
		v.Attempts = append(v.Attempts, finishedAttempt(&status.Attempts[i]))
	}
	if status.Attempt.JobName != "" {
		v.Attempts = append(v.Attempts, Attempt{
			Label: render.AttemptLabel(status.Run, status.Attempt.Attempt), Outcome: string(status.Phase), Level: e.Level, Cost: dollars(status.Attempt.CostUSD), Start: timeOf(status.Attempt.StartTime),
		})
	}
	if result := status.Result; result != nil {
		v.Summary = cleanText(result.Summary)
		for i := range result.Repositories {
			v.Repositories = append(v.Repositories, newRepository(&result.Repositories[i]))
		}
		if result.Usage != nil {
			v.Usage = cleanText(string(result.Usage.Raw))
		}
	}
	return v
}

// Prompt returns the prompt of a session.
func Prompt(e *Entry) string {
	if s, isSession := e.Object.(*v1alpha1.AgenticSession); isSession {
		return cleanText(s.Spec.Prompt)
	}
	return ""
}

// AcceptsMessages reports whether a session accepts messages: it is interactive and runs.
func AcceptsMessages(s *v1alpha1.AgenticSession) bool {
	return s.Spec.Interactive && s.Status.Phase == v1alpha1.SessionRunning && s.DeletionTimestamp.IsZero()
}

// AttachCommand is the arguments of the command that sends its standard input to an interactive session.
func AttachCommand(e *Entry) []string { return objectArgs(e, "attach") }

func finishedAttempt(run *v1alpha1.SessionAttempt) Attempt {
	level := LevelProblem
	switch run.Outcome {
	case v1alpha1.RunCompleted:
		level = LevelGood
	case v1alpha1.RunRetried, v1alpha1.RunStopped:
		level = LevelWaiting
	}
	return Attempt{
		Label: render.AttemptLabel(run.Run, run.Attempt), Outcome: cleanLine(string(run.Outcome)), Reason: joinReason(run.Reason, run.Message), Cost: dollars(run.CostUSD),
		Level: level, Start: timeOf(run.StartTime), End: timeOf(run.CompletionTime),
	}
}

func timeBudget(s *v1alpha1.AgenticSession, now time.Time) Budget {
	used := s.Status.ActiveDuration.Duration.Duration
	if start := s.Status.Attempt.ActiveSince; start != nil {
		used += max(0, now.Sub(start.Time)).Truncate(time.Second)
	}
	b := Budget{Name: "Time", Used: render.FormatRounded(used), Limit: "no limit"}
	if limit := agenticsession.TimeoutOf(&s.Spec); limit > 0 {
		b.Limit = render.FormatRounded(limit)
		b.Share = share(used.Seconds(), limit.Seconds())
	}
	return b
}

func costBudget(s *v1alpha1.AgenticSession) Budget {
	b := Budget{Name: "Cost", Used: dollars(s.Status.TotalCostUSD), Limit: "no limit"}
	limit := s.Spec.Limits.MaxCostUSD
	if limit == nil {
		limit = s.Status.Attempt.Limits.MaxCostUSD
	}
	if limit == nil {
		return b
	}
	b.Limit = dollars(limit)
	if s.Status.TotalCostUSD != nil {
		used, usedErr := strconv.ParseFloat(string(*s.Status.TotalCostUSD), 64)
		most, mostErr := strconv.ParseFloat(string(*limit), 64)
		if usedErr == nil && mostErr == nil {
			b.Share = share(used, most)
		}
	}
	return b
}

func share(used, limit float64) float64 {
	const percent = 100
	if limit <= 0 {
		return 0
	}
	return max(0, min(percent, used/limit*percent))
}

func sessionActions(e *Entry, s *v1alpha1.AgenticSession) []Action {
	phase := s.Status.Phase
	switch {
	case !s.DeletionTimestamp.IsZero():
		return nil
	case s.Spec.Suspend || phase == v1alpha1.SessionCompleted || phase == v1alpha1.SessionFailed || phase == v1alpha1.SessionStopped:
		restart := newAction(e, "Restart", "Continues the run if you stopped it; otherwise starts the next one. A persistent workspace is kept.", "restart")
		restart.Helps = phase != v1alpha1.SessionCompleted
		return []Action{restart}
	default:
		return []Action{
			newAction(e, "Stop", fmt.Sprintf("The runner has %d seconds to exit. Its logs are deleted with its Pod; a persistent workspace is kept.", agenticsession.GracePeriodSeconds), "stop").destroying(e),
		}
	}
}

// Repository is the outcome of a session's repository.
type Repository struct {
	Name, Branch, Commit, State, Error string
	Level                              Level
	// PullRequest is the address of its pull request as text, and Link the same address if a browser can open it safely.
	PullRequest, Link string
}

func newRepository(r *v1alpha1.SessionRepositoryResult) Repository {
	const shownCommitBytes = 12
	commit := cleanLine(r.Commit)
	commit = commit[:min(len(commit), shownCommitBytes)]
	v := Repository{
		Name: cleanLine(r.Name), Branch: orUnknown(cleanLine(r.Branch)), Commit: orUnknown(commit), State: "not pushed",
		Error: cleanLine(r.Error), PullRequest: cleanLine(r.PullRequestURL), Link: webLink(r.PullRequestURL),
	}
	switch {
	case r.Error != "":
		v.State, v.Level = "failed", LevelProblem
	case r.Pushed:
		v.State, v.Level = "pushed", LevelGood
	}
	return v
}

// webLink returns the text if it is a web address without hidden parts, and otherwise an empty text. The runner wrote it, so it can
// be any text.
func webLink(text string) string {
	address, err := url.Parse(text)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || address.User != nil || cleanLine(text) != text {
		return ""
	}
	return address.String()
}
