package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// Run is a run of a sequence, a session or a Schedule.
type Run struct {
	*Entry

	Number             int32
	Due, Start, Finish time.Time
	// Request is the ID of the request; empty if the run is of a timetable.
	Request string
	// IsGone is set if only the page remembers the run: its object was deleted, or has run again.
	IsGone bool
}

// NewRun returns the latest run of an object that runs.
func NewRun(e *Entry) (run Run, isRun bool) {
	run.Entry = e
	var status *v1alpha1.RunStatus
	switch object := e.Object.(type) {
	case *v1alpha1.SequentialJob:
		status, run.Request = &object.Status.RunStatus, cleanLine(object.Annotations[v1alpha1.AnnotationRerunID])
	case *v1alpha1.AgenticSession:
		status, run.Request = &object.Status.RunStatus, cleanLine(object.Annotations[v1alpha1.AnnotationRerunID])
	default:
		return run, false
	}
	run.Number, run.Start, run.Finish = status.Run, timeOf(status.StartTime), timeOf(status.CompletionTime)
	_, run.Due = ScheduleOf(e)
	return run, true
}

// begin orders runs; zero if unknown.
func (r *Run) begin() time.Time {
	for _, t := range []time.Time{r.Start, r.Due, r.Created} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// Duration is how long the run took, or has taken; 0 if it has not started.
func (r *Run) Duration(now time.Time) time.Duration {
	switch {
	case r.Start.IsZero():
		return 0
	case !r.Finish.IsZero():
		now = r.Finish
	}
	return max(0, now.Sub(r.Start)).Round(time.Second)
}

// SeriesKey is the subject of a series of runs: a Schedule, or a sequence or session without a Schedule. UID distinguishes it from
// earlier objects with the same name.
type SeriesKey struct {
	Kind            *Kind
	Namespace, Name string
	UID             types.UID
}

// SeriesOf returns the series of an object.
func SeriesOf(e *Entry) SeriesKey {
	if owner := scheduleReference(e); owner != nil {
		return SeriesKey{Schedules, e.Namespace, cleanLine(owner.Name), owner.UID}
	}
	key := SeriesKey{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	if object, isObject := e.Object.(metav1.Object); isObject {
		key.UID = object.GetUID()
	}
	return key
}

// maxRuns is the number of runs that a page lists.
const maxRuns = 100

// Runs returns the known runs of a series, the newest first. Those that started since the page started may be remembered runs.
func (s *State) Runs(key SeriesKey) []Run {
	if key.Kind == Schedules {
		return s.runsOfSchedules(func(other SeriesKey) bool { return other == key })[key]
	}
	for _, e := range s.Entries[key.Kind] {
		if SeriesOf(e) == key {
			return s.runsOfObject(e)
		}
	}
	return nil
}

// runsOfSchedules returns the known runs of the selected Schedules.
func (s *State) runsOfSchedules(isSelected func(SeriesKey) bool) map[SeriesKey][]Run {
	all := map[SeriesKey][]Run{}
	for _, kind := range []*Kind{Sequences, Sessions} {
		for _, e := range s.Entries[kind] {
			if key := SeriesOf(e); key.Kind == Schedules && isSelected(key) {
				if run, isRun := NewRun(e); isRun {
					all[key] = append(all[key], run)
				}
			}
		}
	}
	for key, runs := range s.Seen {
		if key.Kind == Schedules && isSelected(key) {
			all[key] = append(all[key], runs...)
		}
	}
	for key, runs := range all {
		all[key] = newestRuns(runs)
	}
	return all
}

// runsOfObject returns the known runs of a sequence or session.
func (s *State) runsOfObject(e *Entry) []Run {
	run, _ := NewRun(e)
	return newestRuns(append([]Run{run}, s.Seen[SeriesOf(e)]...))
}

func newestRuns(runs []Run) []Run {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(b.begin().Compare(a.begin()), cmp.Compare(b.Number, a.Number), cmp.Compare(a.Name, b.Name))
	})
	return runs[:min(len(runs), maxRuns)]
}

func anySeries(SeriesKey) bool { return true }

// Bar is a run in a row of bars.
type Bar struct {
	Run

	// Height is 1 to MaxBarHeight: its share of the longest run.
	Height int
	Label  string
}

// MaxBarHeight is the height of the longest run of a row.
const MaxBarHeight = 8

// NewBars returns a bar for each of the latest runs, the oldest first. The runs are the newest first.
func NewBars(runs []Run, now time.Time) []Bar {
	const maxBars = 30
	runs = runs[:min(len(runs), maxBars)]
	longest := time.Second
	for i := range runs {
		longest = max(longest, runs[i].Duration(now))
	}
	bars := make([]Bar, 0, len(runs))
	for _, run := range slices.Backward(runs) {
		label := fmt.Sprintf("%s: %s", run.Name, run.Status)
		if run.Number > 1 {
			label += fmt.Sprintf(", run %d", run.Number)
		}
		if !run.Start.IsZero() {
			label += ", " + run.Start.UTC().Format(time.DateTime) + " UTC"
		}
		if !run.Finish.IsZero() {
			label += ", " + render.FormatRounded(run.Duration(now))
		}
		height := math.Ceil(float64(run.Duration(now)) / float64(longest) * MaxBarHeight)
		bars = append(bars, Bar{Run: run, Height: max(1, int(height)), Label: label})
	}
	return bars
}

// Series is a row of the overview: a Schedule, sequence or session with its latest runs.
type Series struct {
	Of   *Entry
	Bars []Bar
	Last Run
	Next time.Time
	// Took is the duration of the last run that ended.
	Took string
}

// newSeries returns the Schedules, and then the objects without a Schedule, each in the order of their latest run.
func newSeries(state *State, ofSchedules map[SeriesKey][]Run, now time.Time) []Series {
	type candidate struct {
		of    *Entry
		begin time.Time
		runs  []Run // nil for an object without a Schedule
	}
	candidates := make([]candidate, 0, len(ofSchedules)+len(state.Entries[Sequences])+len(state.Entries[Sessions]))
	schedules := map[SeriesKey]*Entry{}
	for _, e := range state.Entries[Schedules] {
		schedules[SeriesOf(e)] = e
	}
	for key, runs := range ofSchedules {
		of := schedules[key]
		if of == nil && runs[0].IsGone {
			continue // its Schedule was deleted
		}
		if of == nil {
			of = &Entry{Kind: Schedules, Namespace: key.Namespace, Name: key.Name}
		}
		candidates = append(candidates, candidate{of, runs[0].begin(), runs})
	}
	for _, kind := range []*Kind{Sequences, Sessions} {
		for _, e := range state.Entries[kind] {
			if scheduleReference(e) == nil {
				run, _ := NewRun(e)
				candidates = append(candidates, candidate{of: e, begin: run.begin()})
			}
		}
	}
	var all []Series
	for _, c := range firstOf(candidates, maxSeries, func(a, b candidate) int {
		return cmp.Or(decision.CompareTrueFirst(a.runs != nil, b.runs != nil), b.begin.Compare(a.begin), cmp.Compare(a.of.Namespace, b.of.Namespace), cmp.Compare(a.of.Name, b.of.Name))
	}) {
		if c.runs == nil {
			c.runs = state.runsOfObject(c.of)
		}
		s := Series{Of: c.of, Bars: NewBars(c.runs, now), Last: c.runs[0], Took: Unknown}
		if ended := slices.IndexFunc(c.runs, func(run Run) bool { return !run.Finish.IsZero() && !run.Start.IsZero() }); ended >= 0 {
			s.Took = render.FormatRounded(c.runs[ended].Duration(now))
		}
		if object, isSchedule := c.of.Object.(*v1alpha1.Schedule); isSchedule && !object.Spec.Suspend {
			s.Next = timeOf(object.Status.NextScheduleTime)
		}
		all = append(all, s)
	}
	return all
}

// firstOf returns the first elements in an order, without the cost of sorting all.
func firstOf[T any](all []T, number int, compare func(a, b T) int) []T {
	var first []T
	for _, element := range all {
		if len(first) == number {
			if compare(element, first[number-1]) >= 0 {
				continue
			}
			first = first[:number-1]
		}
		at, _ := slices.BinarySearchFunc(first, element, compare)
		first = slices.Insert(first, at, element)
	}
	return first
}
