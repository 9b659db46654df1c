package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
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
func NewList(state *State, kind *Kind, query Query) *List {
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
	for _, e := range entries[first:min(len(entries), first+PageSize)] {
		l.Rows = append(l.Rows, Row{e, rowFacts(e)})
	}
	for _, fact := range rowFacts(NewEntry(emptyObjects[kind])) {
		l.Headers = append(l.Headers, fact.Name)
	}
	return l
}

var emptyObjects = map[*Kind]any{
	Sequences: &v1alpha1.SequentialJob{}, Sessions: &v1alpha1.AgenticSession{}, Queues: &v1alpha1.Queue{}, Pools: &v1alpha1.WorkerPool{}, Schedules: &v1alpha1.Schedule{},
}

func rowFacts(e *Entry) []Fact {
	switch object := e.Object.(type) {
	case *v1alpha1.SequentialJob:
		status := &object.Status
		return []Fact{
			{Name: "Steps", Value: orUnknown(cleanLine(sequentialjob.FormatProgress(object, false)))},
			{Name: "Step", Value: orUnknown(cleanLine(status.Progress.CurrentStep))},
			{Name: "Run", Value: ordinal(status.Run)},
		}
	case *v1alpha1.AgenticSession:
		return []Fact{
			{Name: "Run", Value: ordinal(object.Status.Run)},
			{Name: "Attempt", Value: ordinal(agenticsession.AttemptNumber(&object.Status))},
			{Name: "Cost", Value: dollars(object.Status.TotalCostUSD)},
			{Name: "Runner", Value: orUnknown(cleanLine(object.Spec.Runner))},
		}
	case *v1alpha1.Queue:
		status := &object.Status
		return []Fact{
			{Name: "Backlog", Value: count(status.Backlog)},
			{Name: "In flight", Value: count(status.InFlight)},
			{Name: "Dead", Value: count(status.Dead), Level: deadLevel(status.Dead)},
			{Name: "Oldest", Value: Unknown, Time: timeOf(status.OldestTime)},
			{Name: "Wait, p95", Value: duration(status.WaitP95)},
		}
	case *v1alpha1.WorkerPool:
		status := &object.Status
		return []Fact{
			{Name: "Workers", Value: fmt.Sprintf("%d of %d", status.Ready, status.Desired)},
			{Name: "Busy", Value: count(status.Busy)},
			{Name: "Draining", Value: number(status.Draining)},
			{Name: "Backlog", Value: count(status.Backlog)},
			objectiveFact(object),
		}
	case *v1alpha1.Schedule:
		status := &object.Status
		return []Fact{
			{Name: "Schedule", Value: orUnknown(cleanLine(object.Spec.Schedule))},
			{Name: "Time zone", Value: cmp.Or(cleanLine(object.Spec.TimeZone), "UTC")},
			{Name: "Last", Value: Unknown, Time: timeOf(status.LastScheduleTime)},
			{Name: "Next", Value: Unknown, Time: timeOf(status.NextScheduleTime)},
			lastResult(status),
			{Name: "Missed", Value: strconv.FormatInt(status.Missed, 10), Level: deadLevel(&status.Missed)},
		}
	default:
		return nil
	}
}
