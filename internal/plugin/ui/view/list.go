package view

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// PageSize is the number of rows of a list.
const PageSize = 100

// Query selects the rows of a list.
type Query struct {
	Text string
	Page int // the first is 1
}

// Row is a row of a list.
type Row struct {
	*Entry

	Facts []Fact
}

// List is the list of a kind.
type List struct {
	Kind           *Kind
	State          WatchState
	Query          Query
	ShowNamespaces bool
	Headers        []string
	Rows           []Row
	// Total is the number of matching objects, and All the number of all objects.
	Total, All, Pages int
}

// NewList computes the page of a list that the query selects.
func NewList(state *State, kind *Kind, query Query, now time.Time) *List {
	entries := state.Entries[kind]
	l := &List{Kind: kind, State: state.Watches[kind], Query: query, ShowNamespaces: len(state.Scope.Namespaces) != 1, All: len(entries)}
	if query.Text != "" {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return !e.Matches(query.Text) })
	} else {
		entries = slices.Clone(entries)
	}
	slices.SortFunc(entries, CompareEntries)
	l.Total, l.Pages = len(entries), max(1, (len(entries)+PageSize-1)/PageSize)
	l.Query.Page = min(max(1, query.Page), l.Pages)
	first := (l.Query.Page - 1) * PageSize
	var runs map[SeriesKey][]Run
	if kind == Schedules {
		runs = state.runsOfSchedules(anySeries)
	}
	for _, e := range entries[first:min(len(entries), first+PageSize)] {
		l.Rows = append(l.Rows, Row{e, rowFacts(state, runs, e, now)})
	}
	for _, fact := range rowFacts(&State{}, nil, NewEntry(emptyObjects[kind]), now) {
		l.Headers = append(l.Headers, fact.Name)
	}
	return l
}

var emptyObjects = map[*Kind]any{
	Sequences: &v1alpha1.SequentialJob{}, Sessions: &v1alpha1.AgenticSession{}, Queues: &v1alpha1.Queue{}, Pools: &v1alpha1.WorkerPool{}, Schedules: &v1alpha1.Schedule{},
}

func rowFacts(state *State, runs map[SeriesKey][]Run, e *Entry, now time.Time) []Fact {
	switch object := e.Object.(type) {
	case *v1alpha1.SequentialJob:
		status := &object.Status
		return []Fact{
			{Name: "Steps", Value: orUnknown(cleanLine(sequentialjob.FormatProgress(object, false))), Steps: stepSegments(object)},
			{Name: "Step", Value: orUnknown(cleanLine(status.Progress.CurrentStep))},
			{Name: "Run", Value: ordinal(status.Run)},
			timeFact(e, now),
		}
	case *v1alpha1.AgenticSession:
		return []Fact{
			{Name: "Run", Value: ordinal(object.Status.Run)},
			{Name: "Attempt", Value: ordinal(agenticsession.AttemptNumber(&object.Status))},
			timeFact(e, now),
			{Name: "Cost", Value: dollars(object.Status.TotalCostUSD)},
			{Name: "Runner", Value: orUnknown(cleanLine(object.Spec.Runner))},
		}
	case *v1alpha1.Queue:
		status := &object.Status
		return []Fact{
			loadFacts(state, e)[0],
			{Name: "In flight", Value: count(status.InFlight)},
			{Name: "Dead", Value: count(status.Dead), Level: deadLevel(status.Dead)},
			{Name: "Oldest", Value: Unknown, Time: timeOf(status.OldestTime)},
			{Name: "Wait, p95", Value: duration(status.WaitP95)},
		}
	case *v1alpha1.WorkerPool:
		status := &object.Status
		return []Fact{
			loadFacts(state, e)[1],
			{Name: "Busy", Value: count(status.Busy)},
			{Name: "Draining", Value: number(status.Draining)},
			loadFacts(state, e)[0],
			objectiveFact(object),
		}
	case *v1alpha1.Schedule:
		status := &object.Status
		return []Fact{
			{Name: "Schedule", Value: orUnknown(cleanLine(object.Spec.Schedule))},
			{Name: "Time zone", Value: cmp.Or(cleanLine(object.Spec.TimeZone), "UTC")},
			{Name: "Last", Value: Unknown, Time: timeOf(status.LastScheduleTime)},
			{Name: "Next", Value: Unknown, Time: timeOf(status.NextScheduleTime)},
			runsFact(runs[SeriesOf(e)], status, now),
			{Name: "Missed", Value: strconv.FormatInt(status.Missed, 10), Level: deadLevel(&status.Missed)},
		}
	default:
		return nil
	}
}

// timeFact is how long the latest run took, or has taken.
func timeFact(e *Entry, now time.Time) Fact {
	fact := Fact{Name: "Time", Value: Unknown}
	if run, isRun := NewRun(e); isRun && !run.Finish.IsZero() && !run.Start.IsZero() {
		fact.Value = render.FormatRounded(run.Duration(now))
	} else if !run.Start.IsZero() {
		fact.Since = run.Start
	}
	return fact
}

// runsFact is the latest runs of a Schedule, or the last result if no run is known.
func runsFact(runs []Run, status *v1alpha1.ScheduleStatus, now time.Time) Fact {
	fact := lastResult(status)
	fact.Name, fact.Bars = "Runs", NewBars(runs, now)
	return fact
}
