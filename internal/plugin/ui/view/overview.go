package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// WatchState is whether the objects of a kind are known.
type WatchState struct {
	// Synced is set once all objects have been read.
	Synced bool
	// Problem is why they cannot be read now; empty without a problem.
	Problem string
	// Lost is when the connection was lost; zero while it works.
	Lost time.Time
	// Denied is set if they cannot be listed without a change: the permission or the kind is missing.
	Denied bool
}

// State is all that is known about the cluster.
type State struct {
	Scope   Scope
	Entries map[*Kind][]*Entry
	Watches map[*Kind]WatchState
	// Seen are runs that the page has seen, and that no object shows any more.
	Seen map[SeriesKey][]Run
	// History returns the load of a Queue or WorkerPool since the page started.
	History func(*Entry) []Sample
}

// Lost returns the watch that lost its connection first; nil while all connections work.
func (s *State) Lost() *WatchState {
	var first *WatchState
	for _, kind := range Kinds {
		if state := s.Watches[kind]; !state.Lost.IsZero() && (first == nil || state.Lost.Before(first.Lost)) {
			first = &state
		}
	}
	return first
}

// In returns the state of a namespace; of all if it is empty.
func (s *State) In(namespace string) *State {
	if namespace == "" {
		return s
	}
	part := *s
	part.Entries = map[*Kind][]*Entry{}
	for kind, entries := range s.Entries {
		part.Entries[kind] = slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return e.Namespace != namespace })
	}
	return &part
}

// Namespaces returns the namespaces with objects.
func (s *State) Namespaces() []string {
	var all []string
	for _, kind := range Kinds {
		for _, e := range s.Entries[kind] {
			if n := len(all); n == 0 || all[n-1] != e.Namespace {
				all = append(all, e.Namespace)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The lengths of the overview's lists.
const (
	maxAttention = 50
	maxActive    = 12
	maxLoads     = 12
	maxSeries    = 15
)

// KindCount counts the objects of a kind by level.
type KindCount struct {
	Kind                             *Kind
	Total, Active, Waiting, Problems int
	State                            WatchState
}

// Need is an object that needs attention.
type Need struct {
	*Entry

	// Action is the command that most likely helps; nil if the page of the object has to be read first.
	Action *Action
}

// Active is an object that runs.
type Active struct {
	*Entry

	Steps  []Segment
	Detail string
}

// Segment is a step of a run, drawn as a part of a bar.
type Segment struct {
	Level Level
	Label string
}

// Load is the load of a Queue or WorkerPool.
type Load struct {
	*Entry

	Facts []Fact
}

// Overview is the first page.
type Overview struct {
	Kinds []KindCount
	// Attention lists objects that need attention: objects that wait for a decision first, then the latest. Of the runs of a Schedule,
	// only the latest that ended counts.
	Attention     []Need
	MoreAttention int
	Active        []Active
	MoreActive    int
	Series        []Series
	Loads         []Load
	// Completed and Failed count the runs that ended today, and Spent is the cost of the attempts of sessions that ended today, or run.
	Completed, Failed int
	Spent             string
	// Loading is set until all permitted objects have been read.
	Loading bool
}

// NewOverview computes the first page. Today begins at midnight in the location of now.
func NewOverview(state *State, now time.Time) *Overview {
	runs := state.runsOfSchedules(anySeries)
	o := &Overview{Series: newSeries(state, runs, now)}
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	var costs spending
	var active, loads, attention []*Entry
	for _, kind := range Kinds {
		total := KindCount{Kind: kind, State: state.Watches[kind]}
		o.Loading = o.Loading || !total.State.Synced && total.State.Problem == ""
		for _, e := range state.Entries[kind] {
			total.add(e)
			if e.NeedsAttention && !isOutdated(e, runs) {
				attention = append(attention, e)
			}
			if !e.Finished.Before(midnight) && !e.Finished.IsZero() {
				if e.Level == LevelGood {
					o.Completed++
				} else {
					o.Failed++
				}
			}
			if _, isRun := NewRun(e); isRun && e.Level == LevelActive {
				active = append(active, e)
			}
			if kind == Queues || kind == Pools {
				loads = append(loads, e)
			}
			if session, isSession := e.Object.(*v1alpha1.AgenticSession); isSession {
				costs.add(session, midnight)
			}
		}
		o.Kinds = append(o.Kinds, total)
	}
	o.Spent = costs.String()
	for _, e := range firstOf(attention, maxAttention, func(a, b *Entry) int {
		return cmp.Or(decision.CompareTrueFirst(a.Asks, b.Asks), b.Since.Compare(a.Since), CompareEntries(a, b))
	}) {
		o.Attention = append(o.Attention, Need{e, helpfulAction(e)})
	}
	for _, e := range firstOf(active, maxActive, func(a, b *Entry) int { return cmp.Or(b.Since.Compare(a.Since), CompareEntries(a, b)) }) {
		o.Active = append(o.Active, newActive(e))
	}
	o.MoreAttention, o.MoreActive = len(attention)-len(o.Attention), len(active)-len(o.Active)
	for _, e := range firstOf(loads, maxLoads, func(a, b *Entry) int {
		return cmp.Or(decision.CompareTrueFirst(a.NeedsAttention, b.NeedsAttention), cmp.Compare(backlogOf(b), backlogOf(a)), cmp.Compare(a.Kind.Path, b.Kind.Path), CompareEntries(a, b))
	}) {
		o.Loads = append(o.Loads, Load{e, loadFacts(state, e)})
	}
	return o
}

func (c *KindCount) add(e *Entry) {
	c.Total++
	switch e.Level {
	case LevelActive:
		c.Active++
	case LevelWaiting:
		c.Waiting++
	case LevelProblem:
		c.Problems++
	case LevelNone, LevelGood:
	}
}

// isOutdated reports whether a later run of the same Schedule has ended, or whether the latest run is listed instead of its Schedule.
func isOutdated(e *Entry, all map[SeriesKey][]Run) bool {
	key := SeriesOf(e)
	if key.Kind != Schedules || e.Kind != Schedules && e.Finished.IsZero() || e.Kind == Schedules && !e.OfRun {
		return false
	}
	runs := all[key]
	latest := slices.IndexFunc(runs, func(run Run) bool { return !run.Finish.IsZero() })
	if latest < 0 {
		return false
	}
	if e.Kind == Schedules {
		return !runs[latest].IsGone && runs[latest].NeedsAttention
	}
	return runs[latest].Entry != e
}

// helpfulAction returns the approval that a sequence waits for, or its rerun from the failed step.
func helpfulAction(e *Entry) *Action {
	sj, isSequence := e.Object.(*v1alpha1.SequentialJob)
	if !isSequence {
		return nil
	}
	for _, action := range sequenceActions(e, sj) {
		if action.Helps {
			action.Helps = e.Asks // of several, only decisions stand out
			return &action
		}
	}
	return nil
}

func newActive(e *Entry) Active {
	a := Active{Entry: e}
	switch object := e.Object.(type) {
	case *v1alpha1.SequentialJob:
		a.Steps, a.Detail = stepSegments(object), cleanLine(object.Status.Progress.CurrentStep)
	case *v1alpha1.AgenticSession:
		a.Detail = dollars(object.Status.TotalCostUSD)
	}
	return a
}

// stepSegments returns nil for more steps than a bar shows.
func stepSegments(sj *v1alpha1.SequentialJob) []Segment {
	const maxSegments = 24
	if len(sj.Status.Steps) > maxSegments {
		return nil
	}
	var all []Segment
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		all = append(all, Segment{stepLevel(step), cleanLine(step.Name) + ": " + string(step.Phase)})
	}
	return all
}

func backlogOf(e *Entry) int64 {
	switch object := e.Object.(type) {
	case *v1alpha1.Queue:
		return ptr.Deref(object.Status.Backlog, 0)
	case *v1alpha1.WorkerPool:
		return ptr.Deref(object.Status.Backlog, 0)
	default:
		return 0
	}
}

// loadFacts are the backlog and the workers of a Queue or WorkerPool, each with the line of its recent values.
func loadFacts(state *State, e *Entry) []Fact {
	var history []Sample
	if state.History != nil {
		history = state.History(e)
	}
	backlog, workers := Fact{Name: "Backlog", Value: Unknown}, Fact{Name: "Workers"}
	backlog.Line = newLine(history, func(s *Sample) *float64 { return s.Backlog })
	switch object := e.Object.(type) {
	case *v1alpha1.Queue:
		backlog.Value = count(object.Status.Backlog)
	case *v1alpha1.WorkerPool:
		backlog.Value, workers.Value = count(object.Status.Backlog), fmt.Sprintf("%d of %d", object.Status.Ready, object.Status.Desired)
		workers.Line = newLine(history, func(s *Sample) *float64 { return s.Ready })
	}
	return []Fact{backlog, workers}
}

// spending is the cost of attempts.
type spending struct {
	dollars        float64
	known, unknown int
}

// add adds the attempts of a session that run, or ended since a time.
func (s *spending) add(session *v1alpha1.AgenticSession, since time.Time) {
	status := &session.Status
	if status.Attempt.JobName != "" {
		s.addCost(status.Attempt.CostUSD)
	}
	for i := range status.Attempts {
		if attempt := &status.Attempts[i]; !timeOf(attempt.CompletionTime).Before(since) {
			s.addCost(attempt.CostUSD)
		}
	}
}

func (s *spending) addCost(cost *v1alpha1.Number) {
	if cost != nil {
		if value, err := strconv.ParseFloat(string(*cost), 64); err == nil {
			s.dollars, s.known = s.dollars+value, s.known+1
			return
		}
	}
	s.unknown++
}

// String returns the sum, which is a lower bound if some attempts report no cost.
func (s *spending) String() string {
	switch {
	case s.known == 0 && s.unknown > 0:
		return Unknown
	case s.unknown > 0:
		return fmt.Sprintf("at least $%.2f", s.dollars)
	default:
		return fmt.Sprintf("$%.2f", s.dollars)
	}
}
